//! Announced firings: stored in the transaction that causes them, and then processed, exactly once.
//!
//! Each step puts the firing into the queues of some hosts and stores the
//! progress in the same transaction; the last step deletes it. So a server may
//! die at any point, and several may work on the same firing: no host is omitted,
//! and none is notified twice, not even one that has answered in the meantime.

use bunraku_model::{EnvironmentName, FiringId, NodeName, TriggerName};
use bunraku_store::{Transaction, settle};
use bunraku_wire::api::triggers::{FireReply, TriggerLimits, TriggerNews};
use bunraku_wire::api::{TriggerCause, TriggerHop};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::limits::HeldFirings;
use super::notify::{self, HOSTS_NAMED, Notification, NotifiedHosts, QueuedFiring};
use super::{DEFAULT_DEADLINE, Triggers, limits};
use bunraku_control::document;
use bunraku_control::nodes;
use bunraku_control::{ServiceError, keys};

/// Hosts per step: two compares and two writes each, of 128.
const PER_STEP: usize = 40;

/// A firing to be processed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AnnouncedFiring {
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
    /// The first hosts that were notified, and the first unknown ones.
    #[serde(flatten)]
    hosts: NotifiedHosts,
}

impl Progress {
    /// Records a step that ends with this host.
    fn advance(&mut self, last: Option<&NodeName>, step: &NotifiedHosts) {
        self.after = last.cloned();
        self.count += step.reached.len();
        for (known, new) in [
            (&mut self.hosts.reached, &step.reached),
            (&mut self.hosts.unknown, &step.unknown),
        ] {
            known.extend(new.iter().cloned());
            known.truncate(HOSTS_NAMED);
        }
    }
}

impl AnnouncedFiring {
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
            reason: Some(reason),
            chain: vec![TriggerHop {
                trigger: trigger.to_string(),
                node: None,
                changed: true,
                at,
            }],
            firing: Some(id),
            ..TriggerCause::new(
                trigger.as_str(),
                bunraku_wire::api::triggers::DEFAULT_TTL - 1,
            )
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

    fn trigger_news(&self) -> TriggerNews {
        let Progress { count, hosts, .. } = &self.progress;
        if *count == 0 && hosts.unknown.is_empty() {
            return TriggerNews::NoHosts {
                by: self.by.clone(),
                reason: (self.causes.first()).and_then(|cause| cause.reason.clone()),
                tried: Vec::new(),
            };
        }
        notify::fired(self.id, &self.by, &self.causes, *count, hosts)
    }
}

impl Triggers {
    /// Processes the firing announced at a key, to its end. Returns this server's
    /// part of the result.
    pub async fn process(&self, key: &str) -> Result<FireReply, ServiceError> {
        let mut hosts = NotifiedHosts::default();
        // Another server may have been faster, at any step.
        while let Some(entry) = self.store.get(key).await? {
            let announced: AnnouncedFiring = match document::decode(&entry) {
                Ok(announced) => announced,
                Err(error) => {
                    tracing::error!(error = %error, "ignoring an announced trigger");
                    settle(&*self.store, Transaction::new().delete(key)).await?;
                    continue;
                }
            };
            let step = Transaction::new().when_unchanged(key, Some(&entry));
            let limits = self.limits(&announced.trigger).await?;
            if limits::are_any(&limits) && !announced.released {
                self.put_behind(step, key, &announced, &limits).await?
            } else {
                let reached = self.notify_some(step, key, &announced, &limits).await?;
                hosts.reached.extend(reached.reached);
                hosts.unknown.extend(reached.unknown);
            }
        }
        Ok(FireReply::Fired {
            hosts: hosts.reached,
            unknown: hosts.unknown,
        })
    }

    /// Notifies the next hosts, in one transaction. Returns the notified and the
    /// unknown hosts; none if another writer interfered.
    async fn notify_some(
        &self,
        step: Transaction,
        key: &str,
        announced: &AnnouncedFiring,
        limits: &TriggerLimits,
    ) -> Result<NotifiedHosts, ServiceError> {
        let all = self.hosts_or_none(announced, limits).await?;
        let after = announced.progress.after.as_ref();
        let mut left = all
            .into_iter()
            .filter(|host| after.is_none_or(|after| host > after));
        let hosts: Vec<NodeName> = left.by_ref().take(PER_STEP).collect();
        let more = left.next().is_some();
        let deadline = announced.deadline_seconds.unwrap_or(DEFAULT_DEADLINE);
        let firing = QueuedFiring {
            trigger: &announced.trigger,
            causes: &announced.causes,
            expires: super::expires(self.clock.now(), deadline)?,
        };
        let notification = Notification {
            environment: announced.environment.as_ref(),
            ..Notification::of(firing, &hosts, &announced.by)
        };
        let progressed = |notified: &NotifiedHosts| {
            let mut next = announced.clone();
            next.progress.advance(hosts.last(), notified);
            if more {
                return step.clone().put(key, document::encode(&next));
            }
            self.add_event(step.clone().delete(key), &next.trigger, next.trigger_news())
        };
        // The second attempt knows the queues. After that, look at the announcement again.
        let notified = self.notify(&notification, 2, progressed).await?;
        if notified.is_some() && !more {
            self.metrics.triggers_fired();
        }
        Ok(notified.unwrap_or_default())
    }

    /// Moves the firing to the trigger's held firings, because its limits hold it back.
    async fn put_behind(
        &self,
        step: Transaction,
        key: &str,
        announced: &AnnouncedFiring,
        limits: &TriggerLimits,
    ) -> Result<(), ServiceError> {
        let mut hosts = Vec::new();
        for host in self.hosts_or_none(announced, limits).await? {
            let environment = nodes::environment_of(&*self.store, &host).await?;
            if is_meant(environment.as_ref(), announced.environment.as_ref()) {
                hosts.push(host);
            }
        }
        let held_key = keys::trigger_held(&announced.trigger);
        let known = document::read::<HeldFirings>(&*self.store, &held_key).await?;
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
        settle(&*self.store, transaction).await?;
        Ok(())
    }

    /// Returns the hosts, in the order of their names. Returns none if no host is
    /// named: that does not change later.
    async fn hosts_or_none(
        &self,
        announced: &AnnouncedFiring,
        limits: &TriggerLimits,
    ) -> Result<Vec<NodeName>, ServiceError> {
        let hosts = self.hosts(&announced.hosts, announced.query.as_ref(), limits);
        match hosts.await {
            Err(ServiceError::Invalid { message, .. }) => {
                tracing::warn!(trigger = %announced.trigger, by = announced.by, message, "a trigger has no hosts");
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
