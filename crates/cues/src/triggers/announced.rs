//! Announced firings: stored in the transaction that causes them, and then processed, exactly once.
//!
//! Each step puts the firing into the queues of some hosts and stores the
//! progress in the same transaction; the last step deletes it. So a server may
//! die at any point, and several may work on the same firing: no host is omitted,
//! and none is notified twice, not even one that has answered in the meantime.

use bunraku_model::{EnvironmentName, FiringId, NodeName, TriggerName};
use bunraku_store::Transaction;
use bunraku_wire::api::triggers::{FireReply, TriggerEvent, TriggerLimits, TriggerNews};
use bunraku_wire::api::{TriggerCause, TriggerHop};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::limits::Held;
use super::{DEFAULT_DEADLINE, Firing, Triggers, limits};
use bunraku_control::document;
use bunraku_control::nodes;
use bunraku_control::{ServiceError, keys};

/// Hosts per step: two compares and two writes each, of 128.
const PER_STEP: usize = 40;

/// The number of hosts that news name one by one.
const NAMED: usize = 20;

/// A firing to be processed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Announced {
    pub id: FiringId,
    pub trigger: TriggerName,
    pub by: String,
    #[serde(default)]
    pub hosts: Vec<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The environment that the firing is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentName>,
    pub causes: Vec<TriggerCause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u64>,
    /// True if the trigger's limits have released it.
    #[serde(default)]
    pub released: bool,
    #[serde(default)]
    pub progress: Progress,
}

/// The progress: hosts are notified in the order of their names.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    after: Option<NodeName>,
    count: usize,
    /// The first hosts that were notified.
    hosts: Vec<NodeName>,
    unknown: Vec<NodeName>,
}

impl Announced {
    pub fn new(
        trigger: TriggerName,
        by: String,
        hosts: Vec<NodeName>,
        causes: Vec<TriggerCause>,
    ) -> Self {
        Self {
            id: FiringId(Uuid::now_v7()),
            trigger,
            by,
            hosts,
            query: None,
            environment: None,
            causes,
            deadline_seconds: None,
            released: false,
            progress: Progress::default(),
        }
    }

    /// Creates the beginning of a chain, for a cause that is not a run.
    pub fn beginning(
        id: FiringId,
        trigger: TriggerName,
        by: String,
        hosts: Vec<NodeName>,
        reason: String,
        at: Timestamp,
    ) -> Self {
        let cause = TriggerCause {
            name: trigger.to_string(),
            ttl: bunraku_wire::api::triggers::DEFAULT_TTL - 1,
            reason: Some(reason),
            chain: vec![TriggerHop {
                trigger: trigger.to_string(),
                node: None,
                changed: true,
                at,
            }],
            firing: Some(id),
            more: 0,
        };
        Self {
            id,
            ..Self::new(trigger, by, hosts, vec![cause])
        }
    }

    /// Adds the announcement to a transaction.
    pub fn put_in(&self, transaction: Transaction) -> Transaction {
        transaction.put(keys::trigger_announced(self.id), document::encode(self))
    }

    fn firing(&self) -> Firing<'_> {
        Firing {
            trigger: &self.trigger,
            by: self.by.clone(),
            hosts: Vec::new(),
            causes: self.causes.clone(),
            deadline_seconds: self.deadline_seconds.unwrap_or(DEFAULT_DEADLINE),
        }
    }

    fn news(&self) -> TriggerNews {
        let first = self.causes.first();
        TriggerNews::Fired {
            id: self.id,
            by: self.by.clone(),
            count: self.progress.count,
            hosts: self.progress.hosts.clone(),
            unknown: self.progress.unknown.clone(),
            reason: first.and_then(|cause| cause.reason.clone()),
            chain: first.map(|cause| cause.chain.clone()).unwrap_or_default(),
        }
    }
}

impl Triggers {
    /// Processes the firing announced at a key, to its end. Returns this server's
    /// part of the result.
    pub async fn carry_out(&self, key: &str) -> Result<FireReply, ServiceError> {
        let mut reply = FireReply::Fired {
            hosts: Vec::new(),
            unknown: Vec::new(),
        };
        // Another server may have been faster, at any step.
        while let Some(entry) = self.store.get(key).await? {
            let announced: Announced = match document::decode(&entry) {
                Ok(announced) => announced,
                Err(error) => {
                    tracing::error!(error = %error, "an announced trigger is left out");
                    self.store.commit(Transaction::new().delete(key)).await?;
                    continue;
                }
            };
            let step = Transaction::new().when_unchanged(key, Some(&entry));
            let limits = self.limits(&announced.trigger).await?;
            match limits::are_any(&limits) && !announced.released {
                true => self.put_behind(step, key, &announced, &limits).await?,
                false => {
                    let told = self.tell_some(step, key, announced, &limits).await?;
                    add(&mut reply, told);
                }
            }
        }
        Ok(reply)
    }

    /// Notifies the next hosts, in one transaction. Returns the notified and the
    /// unknown hosts; none if another writer interfered.
    async fn tell_some(
        &self,
        step: Transaction,
        key: &str,
        mut announced: Announced,
        limits: &TriggerLimits,
    ) -> Result<(Vec<NodeName>, Vec<NodeName>), ServiceError> {
        let all = self.whom(&announced, limits).await?;
        let after = announced.progress.after.as_ref();
        let mut left = all
            .into_iter()
            .filter(|host| after.is_none_or(|after| host > after));
        let hosts: Vec<NodeName> = left.by_ref().take(PER_STEP).collect();
        let more = left.next().is_some();
        let (firing, now) = (announced.firing(), self.clock.now());
        let expires = super::expires(now, firing.deadline_seconds)?;
        let (mut transaction, mut told, mut unknown) = (step, Vec::new(), Vec::new());
        let reads = hosts.iter().map(|host| async move {
            let queue = self.store.get(&keys::trigger_queue(host)).await?;
            Ok::<_, ServiceError>((
                host,
                nodes::environment_of(&*self.store, host).await?,
                queue,
            ))
        });
        for read in futures::future::join_all(reads).await {
            let (host, environment, queue) = read?;
            if !is_meant(environment.as_ref(), announced.environment.as_ref()) {
                unknown.push(host.clone());
                continue;
            }
            transaction = self.add_to_queue(transaction, &firing, host, queue.as_ref(), expires)?;
            told.push(host.clone());
        }
        let progress = &mut announced.progress;
        progress.after = hosts.last().cloned();
        progress.count += told.len();
        progress.hosts.extend(told.iter().cloned());
        progress.hosts.truncate(NAMED);
        progress.unknown.extend(unknown.iter().cloned());
        progress.unknown.truncate(NAMED);
        let transaction = match more {
            true => transaction.put(key, document::encode(&announced)),
            false => {
                let event = TriggerEvent {
                    trigger: announced.trigger.clone(),
                    at: now,
                    what: announced.news(),
                };
                let transaction = transaction.delete(key);
                transaction.put(
                    keys::trigger_event(Uuid::now_v7()),
                    document::encode(&event),
                )
            }
        };
        match self.store.commit(transaction).await?.is_committed() {
            true if !more => {
                self.metrics.triggers_fired();
                Ok((told, unknown))
            }
            true => Ok((told, unknown)),
            false => Ok((Vec::new(), Vec::new())),
        }
    }

    /// Moves the firing to the trigger's held firings, because its limits hold it back.
    async fn put_behind(
        &self,
        step: Transaction,
        key: &str,
        announced: &Announced,
        limits: &TriggerLimits,
    ) -> Result<(), ServiceError> {
        let mut hosts = Vec::new();
        for host in self.whom(announced, limits).await? {
            let environment = nodes::environment_of(&*self.store, &host).await?;
            if is_meant(environment.as_ref(), announced.environment.as_ref()) {
                hosts.push(host);
            }
        }
        let held_key = keys::trigger_held(&announced.trigger);
        let known = document::read::<Held>(&*self.store, &held_key).await?;
        let entry = known.as_ref().map(|known| known.entry.clone());
        let mut held = known.map(|known| known.document).unwrap_or_default();
        held.add(hosts, announced.causes.clone(), limits, self.clock.now());
        let deadline = announced.deadline_seconds.unwrap_or(DEFAULT_DEADLINE);
        held.deadline_seconds = held.deadline_seconds.max(deadline);
        held.by.clone_from(&announced.by);
        let transaction = step
            .when_unchanged(&held_key, entry.as_ref())
            .put(held_key, document::encode(&held))
            .delete(key);
        // The task that handles held firings sees the change.
        self.store.commit(transaction).await?;
        Ok(())
    }

    /// Returns the hosts, in the order of their names. Returns none if no host is
    /// named: that does not change later.
    async fn whom(
        &self,
        announced: &Announced,
        limits: &TriggerLimits,
    ) -> Result<Vec<NodeName>, ServiceError> {
        let hosts = self.hosts(&announced.hosts, announced.query.as_ref(), limits);
        match hosts.await {
            Err(ServiceError::Invalid { message, .. }) => {
                tracing::warn!(trigger = %announced.trigger, by = announced.by, message, "a trigger is for nobody");
                Ok(Vec::new())
            }
            other => other,
        }
    }
}

/// Returns whether a host exists, in the environment that a firing is bound to.
fn is_meant(host: Option<&EnvironmentName>, bound: Option<&EnvironmentName>) -> bool {
    host.is_some_and(|host| bound.is_none_or(|bound| bound == host))
}

fn add(reply: &mut FireReply, (told, missing): (Vec<NodeName>, Vec<NodeName>)) {
    if let FireReply::Fired { hosts, unknown } = reply {
        hosts.extend(told);
        unknown.extend(missing);
    }
}
