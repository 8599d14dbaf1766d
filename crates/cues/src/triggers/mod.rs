//! Triggers: firing, limits, and the commands that nodes receive.
//!
//! A firing passes four gates, each a pure decision: its chain of causes
//! (`chain`), the node's budget (`budget`), the trigger's limits (`limits`), and
//! the queue of each node (`node_queue`). A gate's decision is written in a transaction that compares
//! everything it read, so any server may do the next step, and a crash between
//! two steps loses nothing: `dispatch` finds waiting firings again.
//!
//! Absent: running anything. A node gets a run command and has its own queue.

mod announced;
mod budget;
pub mod chain;
mod dispatch;
mod history;
mod lanes;
mod limits;
mod node_queue;
mod notify;
mod permitted;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{CommandId, NodeName, NodeRunId, TriggerName, near_names};
use bunraku_store::{Compare, KeyValue, SharedStore, Swap, Transaction, compare_and_swap, settle};
use bunraku_wire::api::triggers::{
    FireReply, FireTrigger, StopReason, TriggerLimits, TriggerNews, TriggerSummary,
};
use bunraku_wire::api::{
    Cause, Command, Envelope, RunRequest, RunSubject, TriggerCause, TriggerHop,
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::permission::{CueCaller, Permissions};
pub use announced::AnnouncedFiring;
use budget::Spending;
use bunraku_control::clock::Clock;
use bunraku_control::document::{self, Decision};
use bunraku_control::find_nodes::check_node_query;
use bunraku_control::{FindNodes, Metrics, ServiceError, keys};
use chain::ChainEffect;
pub use limits::{HeldFirings, HoldDecision, are_any as limits_hold};
use node_queue::NodeQueue;
use notify::{Notification, NotifiedHosts, QueuedFiring};

/// Nodes per transaction: two compares, two writes and two reads each, of 128.
const PER_TRANSACTION: usize = 60;

/// The most hosts that one firing may name.
const MOST_HOSTS: usize = 100_000;

/// The default time, in seconds, that a trigger waits for a node that is away.
const DEFAULT_DEADLINE: u64 = 24 * 3_600;

/// The handle on the service.
#[derive(Clone)]
pub struct Triggers {
    store: SharedStore,
    clock: Clock,
    find_nodes: Option<Arc<dyn FindNodes>>,
    permissions: Permissions,
    metrics: Arc<Metrics>,
    lanes: Arc<lanes::Lanes>,
    /// Serialises the tasks that release held firings.
    releasing: Arc<tokio::sync::Mutex<()>>,
}

/// A firing that passed the first gate.
struct Firing<'a> {
    trigger: &'a TriggerName,
    by: String,
    hosts: Vec<NodeName>,
    causes: Vec<TriggerCause>,
    deadline_seconds: u64,
}

impl Triggers {
    pub fn new(store: SharedStore, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            clock,
            find_nodes: None,
            permissions: Permissions::default(),
            metrics,
            releasing: Arc::default(),
            lanes: Arc::default(),
        }
    }

    /// Lets triggers name their hosts by a query.
    #[must_use]
    pub fn with_queries(mut self, find_nodes: Arc<dyn FindNodes>) -> Self {
        self.permissions = Permissions::with_queries(Arc::clone(&find_nodes));
        self.find_nodes = Some(find_nodes);
        self
    }

    /// Fires a trigger. When this returns, no crash can lose the firing.
    pub async fn fire(
        &self,
        trigger: &TriggerName,
        asker: CueCaller<'_>,
        request: &FireTrigger,
    ) -> Result<FireReply, ServiceError> {
        let limits = self.limits(trigger).await?;
        if asker.is_operator() {
            return self.fire_permitted(trigger, asker, request, &limits).await;
        }
        self.check_permitted(trigger, asker, request, &limits)
            .await?;
        let reply = self.fire_permitted(trigger, asker, request, &limits);
        Ok(permitted::for_a_node(reply.await?, request))
    }

    async fn fire_permitted(
        &self,
        trigger: &TriggerName,
        asker: CueCaller<'_>,
        request: &FireTrigger,
        limits: &TriggerLimits,
    ) -> Result<FireReply, ServiceError> {
        let node = (!asker.is_operator()).then_some(asker.name);
        let mut hosts = self
            .hosts(&request.hosts, request.query.as_ref(), limits)
            .await?;
        match node {
            Some(_) => self.keep_reachable(&mut hosts, request, limits).await?,
            None if hosts.is_empty() => {
                return Err(ServiceError::Invalid {
                    message: "the query matches no node, so nothing was fired".to_owned(),
                    hint: Some(
                        "see which nodes a query matches with `bunraku node list --query`"
                            .to_owned(),
                    ),
                });
            }
            None => {}
        }
        let chained = chain::continue_chains(trigger, node, request, self.clock.now());
        if let (Some(node), ChainEffect::On(causes)) = (node, &chained)
            && let Spending::Exhausted { first } = self.spend(node, trigger, limits).await?
        {
            let why = StopReason::Budget;
            let chain = causes
                .first()
                .map(|cause| cause.chain.clone())
                .unwrap_or_default();
            self.metrics.trigger_stopped(why);
            if first {
                self.record_stop(trigger, asker, why, &chain).await?;
            }
            return Ok(FireReply::Stopped { why, chain });
        }
        match chained {
            ChainEffect::Stopped { why, chain } => {
                self.metrics.trigger_stopped(why);
                self.record_stop(trigger, asker, why, &chain).await?;
                Ok(FireReply::Stopped { why, chain })
            }
            ChainEffect::On(causes) => {
                let firing = Firing {
                    trigger,
                    by: asker.name.to_string(),
                    hosts,
                    causes,
                    deadline_seconds: request.deadline_seconds.unwrap_or(DEFAULT_DEADLINE),
                };
                self.go_on(&firing, limits).await
            }
        }
    }

    async fn record_stop(
        &self,
        trigger: &TriggerName,
        asker: CueCaller<'_>,
        why: StopReason,
        chain: &[TriggerHop],
    ) -> Result<(), ServiceError> {
        tracing::warn!(%trigger, by = %asker.name, why = why.as_str(), ?chain, "stopped a chain of triggers");
        let news = TriggerNews::Stopped {
            by: asker.name.to_string(),
            why,
            chain: chain.to_vec(),
        };
        self.record(trigger, news).await
    }

    async fn go_on(
        &self,
        firing: &Firing<'_>,
        limits: &TriggerLimits,
    ) -> Result<FireReply, ServiceError> {
        self.metrics.triggers_fired();
        if limits::are_any(limits) {
            self.hold(firing, limits).await
        } else {
            self.send_out(firing).await
        }
    }

    /// Returns the hosts of a firing: those it names, or those of the trigger.
    async fn hosts(
        &self,
        named: &[NodeName],
        query: Option<&String>,
        limits: &TriggerLimits,
    ) -> Result<Vec<NodeName>, ServiceError> {
        let mut hosts = named.to_vec();
        let query = if hosts.is_empty() {
            query.or(limits.query.as_ref())
        } else {
            query
        };
        match (query, &self.find_nodes) {
            (None, _) => {}
            (Some(query), Some(find)) => hosts.extend(find.nodes_matching(query).await?),
            (Some(_), None) => {
                return Err(ServiceError::invalid(
                    "this server does not answer queries: list the hosts",
                ));
            }
        }
        hosts.sort();
        hosts.dedup();
        if hosts.len() > MOST_HOSTS {
            let message = format!("{} hosts exceed the limit of {MOST_HOSTS}", hosts.len());
            return Err(ServiceError::invalid(message));
        }
        if hosts.is_empty() && query.is_none() {
            return Err(ServiceError::Invalid {
                message: "a trigger needs hosts to start runs on".to_owned(),
                hint: Some(
                    "list them, or define them with `bunraku trigger define --query`".to_owned(),
                ),
            });
        }
        Ok(hosts)
    }

    /// Adds a firing to those that the trigger's limits hold back, and releases
    /// all of them if they are due.
    async fn hold(
        &self,
        firing: &Firing<'_>,
        limits: &TriggerLimits,
    ) -> Result<FireReply, ServiceError> {
        let key = keys::trigger_held(firing.trigger);
        let now = self.clock.now();
        let held = document::update(&*self.store, &key, |current: Option<HeldFirings>| {
            let mut held = current.unwrap_or_default();
            // The same firing again: its reply was lost.
            let known = firing.causes.iter().all(|cause| {
                cause
                    .firing
                    .is_some_and(|id| chain::is_known(&held.causes, id))
            });
            if known && !firing.causes.is_empty() {
                return Ok(Decision::Keep);
            }
            held.add(firing.hosts.clone(), firing.causes.clone(), limits, now);
            held.deadline_seconds = held.deadline_seconds.max(firing.deadline_seconds);
            held.by.clone_from(&firing.by);
            Ok(Decision::Write(held))
        });
        let held = held.await?.unwrap_or_default();
        let occurrences = held.occurrences.len() as u64;
        let until = match held.due(limits, now) {
            HoldDecision::Now => {
                let reply = self.release(firing.trigger).await?;
                // Another caller saw that it was due and has released it.
                return Ok(reply.unwrap_or(FireReply::Fired {
                    hosts: held.hosts,
                    unknown: Vec::new(),
                }));
            }
            HoldDecision::At(until) => Some(until),
            HoldDecision::NotYet => None,
        };
        Ok(FireReply::Held { occurrences, until })
    }

    /// Releases held firings, if they are due. One of several servers does it.
    async fn release(&self, trigger: &TriggerName) -> Result<Option<FireReply>, ServiceError> {
        let key = keys::trigger_held(trigger);
        let _turn = self.releasing.lock().await;
        let key = &key;
        let announced = compare_and_swap(&*self.store, |_| async move {
            let limits = self.limits(trigger).await?;
            let Some(read) = document::read::<HeldFirings>(&*self.store, key).await? else {
                return Ok(Swap::Done(None));
            };
            let (held, now) = (read.document, self.clock.now());
            if held.due(&limits, now) != HoldDecision::Now {
                return Ok(Swap::Done(None));
            }
            // From here on it is announced, and announcements are processed once.
            let announced = AnnouncedFiring {
                deadline_seconds: Some(held.deadline_seconds),
                released: true,
                ..AnnouncedFiring::new(trigger.clone(), held.by, held.hosts, held.causes)
            };
            let transaction = Transaction::new()
                .when_unchanged(key, Some(&read.entry))
                .put(key, document::encode(&HeldFirings::released(now)));
            let transaction = announced.put_in(transaction);
            Ok::<_, ServiceError>(Swap::Write(transaction, Some(announced.id)))
        });
        match announced.await? {
            None => Ok(None),
            Some(id) => self.process(&keys::trigger_announced(id)).await.map(Some),
        }
    }

    /// Notifies every host, or leaves the firing in the host's queue.
    async fn send_out(&self, firing: &Firing<'_>) -> Result<FireReply, ServiceError> {
        let expires = expires(self.clock.now(), firing.deadline_seconds)?;
        let chunks = firing
            .hosts
            .chunks(PER_TRANSACTION)
            .map(|hosts| self.send_chunk(firing, hosts, expires));
        // Wait for all of them: if one chunk fails, the others can still succeed.
        let mut hosts = NotifiedHosts::default();
        for outcome in futures::future::join_all(chunks).await {
            let chunk = outcome?;
            hosts.reached.extend(chunk.reached);
            hosts.unknown.extend(chunk.unknown);
        }
        let first = firing.causes.first().and_then(|cause| cause.firing);
        let id = first.unwrap_or(bunraku_model::FiringId(Uuid::nil()));
        let count = hosts.reached.len();
        let news = notify::fired(id, &firing.by, &firing.causes, count, &hosts);
        self.record(firing.trigger, news).await?;
        Ok(FireReply::Fired {
            hosts: hosts.reached,
            unknown: hosts.unknown,
        })
    }

    /// Uses one transaction for many hosts, or the lane of each host if other writers
    /// interfered.
    async fn send_chunk(
        &self,
        firing: &Firing<'_>,
        hosts: &[NodeName],
        expires: Timestamp,
    ) -> Result<NotifiedHosts, ServiceError> {
        if hosts.len() > 1 {
            let queued = QueuedFiring {
                trigger: firing.trigger,
                causes: &firing.causes,
                expires,
            };
            let notification = Notification::of(queued, hosts, &firing.by);
            let notified = self.notify(&notification, 2, |_| Transaction::new());
            if let Some(notified) = notified.await? {
                return Ok(notified);
            }
        }
        let mut notified = NotifiedHosts::default();
        for host in hosts {
            if self.send_one(firing, host, expires).await? {
                notified.reached.push(host.clone());
            } else {
                notified.unknown.push(host.clone());
            }
        }
        Ok(notified)
    }

    /// Writes a host's queue, and a command if one can be sent.
    fn write_queue(
        &self,
        mut transaction: Transaction,
        host: &NodeName,
        entry: Option<&KeyValue>,
        mut queue: NodeQueue,
        by: &str,
    ) -> Transaction {
        let key = keys::trigger_queue(host);
        transaction = transaction
            .when_unchanged(&key, entry)
            .when(Compare::Exists(keys::node_record(host)));
        let id = CommandId(Uuid::now_v7());
        if let Some((causes, expires)) = queue.send(id) {
            let envelope = Envelope {
                id,
                command: Command::Run(Box::new(run_request(causes, expires))),
                sent_by: by.to_owned(),
                sent: self.clock.now(),
                expires,
            };
            transaction =
                transaction.put(keys::command_pending(host, id), document::encode(&envelope));
        }
        if queue.is_empty() {
            transaction.delete(key)
        } else {
            transaction.put(key, document::encode(&queue))
        }
    }

    /// Sets the limits of a trigger, and who may fire it.
    pub async fn define(
        &self,
        trigger: &TriggerName,
        limits: &TriggerLimits,
    ) -> Result<(), ServiceError> {
        if let Some(query) = &limits.query {
            check_node_query(query)?;
        }
        if let Some(budget) = limits.budget
            && !(1..=budget::MOST_FIRINGS).contains(&budget)
        {
            return Err(ServiceError::invalid(format!(
                "a budget is between 1 and {} firings per hour, not {budget}",
                budget::MOST_FIRINGS
            )));
        }
        self.permissions.check(&limits.fired_by)?;
        self.permissions.check(&limits.hosts)?;
        let transaction =
            Transaction::new().put(keys::trigger_limits(trigger), document::encode(limits));
        settle(&*self.store, transaction).await?;
        Ok(())
    }

    /// Removes the limits of a trigger, and releases its held firings.
    pub async fn forget(&self, trigger: &TriggerName) -> Result<(), ServiceError> {
        let transaction = Transaction::new().delete(keys::trigger_limits(trigger));
        settle(&*self.store, transaction).await?;
        self.release(trigger).await?;
        Ok(())
    }

    async fn limits(&self, trigger: &TriggerName) -> Result<TriggerLimits, ServiceError> {
        let read = document::read(&*self.store, &keys::trigger_limits(trigger)).await?;
        Ok(read.map(|read| read.document).unwrap_or_default())
    }

    /// Returns every trigger that has limits or held firings.
    pub async fn list(&self) -> Result<Vec<TriggerSummary>, ServiceError> {
        let mut names: Vec<TriggerName> = Vec::new();
        for prefix in [keys::TRIGGER_LIMITS, keys::TRIGGER_HELD] {
            let found = document::keys_under(&*self.store, prefix).await?;
            let found = found.iter().filter_map(|key| key.strip_prefix(prefix));
            names.extend(found.filter_map(|name| TriggerName::new(name).ok()));
        }
        names.sort();
        names.dedup();
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            all.push(self.show(&name).await?);
        }
        Ok(all)
    }

    /// Returns one trigger.
    pub async fn show(&self, trigger: &TriggerName) -> Result<TriggerSummary, ServiceError> {
        let limits = self.limits(trigger).await?;
        let held =
            document::read::<HeldFirings>(&*self.store, &keys::trigger_held(trigger)).await?;
        if held.is_none() && !self.is_known(trigger).await? {
            return Err(self.no_such_trigger(trigger).await?);
        }
        let held = held.map(|read| read.document).unwrap_or_default();
        let until = match held.due(&limits, self.clock.now()) {
            HoldDecision::At(until) => Some(until),
            HoldDecision::Now | HoldDecision::NotYet => None,
        };
        Ok(TriggerSummary {
            name: trigger.clone(),
            limits,
            held: held.occurrences.len() as u64,
            until,
            last: held.last,
        })
    }
}

impl Triggers {
    /// Returns whether the trigger is defined or was fired.
    async fn is_known(&self, trigger: &TriggerName) -> Result<bool, ServiceError> {
        let limits = self.store.get(&keys::trigger_limits(trigger)).await?;
        Ok(limits.is_some() || !self.history(Some(trigger), 1).await?.is_empty())
    }

    async fn no_such_trigger(&self, trigger: &TriggerName) -> Result<ServiceError, ServiceError> {
        let known = document::keys_under(&*self.store, keys::TRIGGER_LIMITS).await?;
        let known = known
            .iter()
            .filter_map(|key| key.strip_prefix(keys::TRIGGER_LIMITS));
        let near = near_names(trigger.as_str(), known);
        Ok(ServiceError::NotFound {
            what: format!("trigger `{trigger}`"),
            hint: Some(match near.first() {
                Some(near) => format!("did you mean `{near}`?"),
                None => "list the triggers with `bunraku trigger list`".to_owned(),
            }),
        })
    }
}

/// Builds the request for one run of whatever the node's own settings name, for all these causes.
fn run_request(causes: Vec<TriggerCause>, expires: Timestamp) -> RunRequest {
    RunRequest {
        id: NodeRunId(Uuid::now_v7()),
        causes: causes.into_iter().map(Cause::Trigger).collect(),
        mode: None,
        subject: RunSubject::configured(),
        tags: Vec::new(),
        start_before: Some(expires),
        timeout_seconds: None,
        coalesce: true,
        report_unchanged: false,
    }
}

fn expires(now: Timestamp, seconds: u64) -> Result<Timestamp, ServiceError> {
    let span = jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    now.checked_add(span)
        .map_err(|_| ServiceError::invalid("deadline_seconds is too large"))
}

/// The delay before a retry after the store was unavailable.
const RETRY: Duration = Duration::from_millis(500);
