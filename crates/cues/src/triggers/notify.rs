//! Notifies hosts: puts firings into their queues, and sends a command to each host that has
//! none on its way.
//!
//! Whatever a firing comes from, this is the only way to a host's queue: fired directly (many
//! hosts at once), left in a lane (many firings at one host), or announced (in steps, each with
//! its progress in the same transaction).

use bunraku_model::{EnvironmentName, FiringId, NodeName, TriggerName};
use bunraku_store::{KeyValue, Settled, Transaction, settle};
use bunraku_wire::api::TriggerCause;
use bunraku_wire::api::triggers::TriggerNews;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Triggers;
use super::node_queue::NodeQueue;
use bunraku_control::{ServiceError, document, keys, nodes};

/// The number of hosts that news name one by one.
pub(super) const HOSTS_NAMED: usize = 20;

/// A firing, as it is added to a queue.
#[derive(Clone, Copy)]
pub(super) struct QueuedFiring<'a> {
    pub(super) trigger: &'a TriggerName,
    pub(super) causes: &'a [TriggerCause],
    pub(super) expires: Timestamp,
}

/// The firings for one host.
pub(super) struct HostNotice<'a> {
    pub(super) host: &'a NodeName,
    pub(super) firings: Vec<QueuedFiring<'a>>,
}

/// Everything to be written in one transaction.
pub(super) struct Notification<'a> {
    pub(super) notices: Vec<HostNotice<'a>>,
    pub(super) by: &'a str,
    /// Only nodes of this environment are notified.
    pub(super) environment: Option<&'a EnvironmentName>,
}

/// The hosts that were notified, and those that do not exist.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct NotifiedHosts {
    #[serde(rename = "hosts")]
    pub(super) reached: Vec<NodeName>,
    pub(super) unknown: Vec<NodeName>,
}

/// A host's queue, and whether the host is to be notified.
#[derive(Clone)]
struct HostState {
    queue: Option<KeyValue>,
    is_known: bool,
}

impl<'a> Notification<'a> {
    /// Notifies several hosts of one firing.
    pub(super) fn of(firing: QueuedFiring<'a>, hosts: &'a [NodeName], by: &'a str) -> Self {
        let notices = hosts.iter().map(|host| HostNotice {
            host,
            firings: vec![firing],
        });
        Self {
            notices: notices.collect(),
            by,
            environment: None,
        }
    }

    fn split(&self, states: &[HostState]) -> NotifiedHosts {
        let mut hosts = NotifiedHosts::default();
        for (notice, state) in self.notices.iter().zip(states) {
            if state.is_known {
                hosts.reached.push(notice.host.clone());
            } else {
                hosts.unknown.push(notice.host.clone());
            }
        }
        hosts
    }

    /// Returns whether a host exists, in the environment that the firing is bound to.
    fn is_meant(&self, record: Option<&KeyValue>) -> Result<bool, ServiceError> {
        match (record, self.environment) {
            (None, _) => Ok(false),
            (Some(_), None) => Ok(true),
            (Some(record), Some(bound)) => Ok(nodes::environment_in(record)? == *bound),
        }
    }
}

impl Triggers {
    /// Notifies all hosts in one transaction, which begins with what `begin` returns for them.
    /// Returns nothing if that was refused `attempts` times.
    pub(super) async fn notify(
        &self,
        notification: &Notification<'_>,
        attempts: usize,
        begin: impl Fn(&NotifiedHosts) -> Transaction,
    ) -> Result<Option<NotifiedHosts>, ServiceError> {
        let mut states = self.first_states(notification).await?;
        for _ in 0..attempts {
            let hosts = notification.split(&states);
            let mut transaction = begin(&hosts);
            for (notice, state) in notification.notices.iter().zip(&states) {
                if state.is_known {
                    let queue = state.queue.as_ref();
                    transaction = self.add_notice(transaction, notice, queue, notification.by)?;
                }
            }
            if transaction.operations.is_empty() {
                return Ok(Some(hosts));
            }
            for notice in &notification.notices {
                transaction = transaction
                    .read_on_failure(keys::trigger_queue(notice.host))
                    .read_on_failure(keys::node_record(notice.host));
            }
            match settle(&*self.store, transaction).await? {
                Settled::Committed => return Ok(Some(hosts)),
                Settled::Refused(found) => {
                    let mut found = found.into_iter();
                    for state in &mut states {
                        let (queue, record) = (found.next().flatten(), found.next().flatten());
                        state.queue = queue;
                        state.is_known = notification.is_meant(record.as_ref())?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns the assumed state of each host. A node rarely has waiting firings. So this
    /// assumes empty queues without reading them; if that is wrong, the refusal returns the
    /// actual content. Only a bound firing must read the environment of each host first.
    async fn first_states(
        &self,
        notification: &Notification<'_>,
    ) -> Result<Vec<HostState>, ServiceError> {
        if notification.environment.is_none() {
            let assumed = HostState {
                queue: None,
                is_known: true,
            };
            return Ok(vec![assumed; notification.notices.len()]);
        }
        let reads = notification.notices.iter().map(|notice| async move {
            let queue = self.store.get(&keys::trigger_queue(notice.host)).await?;
            let record = self.store.get(&keys::node_record(notice.host)).await?;
            let is_known = notification.is_meant(record.as_ref())?;
            Ok(HostState { queue, is_known })
        });
        let states = futures::future::join_all(reads).await;
        states.into_iter().collect()
    }

    /// Adds the writes that queue a host's firings, or send them.
    fn add_notice(
        &self,
        transaction: Transaction,
        notice: &HostNotice<'_>,
        entry: Option<&KeyValue>,
        by: &str,
    ) -> Result<Transaction, ServiceError> {
        let mut queue: NodeQueue = match entry {
            None => NodeQueue::default(),
            Some(entry) => document::decode(entry)?,
        };
        let mut added = false;
        for firing in &notice.firings {
            let own: Vec<TriggerCause> = (firing.causes.iter())
                .filter(|cause| cause.concerns(notice.host))
                .map(|cause| TriggerCause {
                    hosts: Vec::new(),
                    ..cause.clone()
                })
                .collect();
            added |= queue.add(firing.trigger, &own, firing.expires);
        }
        Ok(if added {
            self.write_queue(transaction, notice.host, entry, queue, by)
        } else {
            transaction
        })
    }
}

/// Returns the news of a firing that notified `count` hosts.
pub(super) fn fired(
    id: FiringId,
    by: &str,
    causes: &[TriggerCause],
    count: usize,
    hosts: &NotifiedHosts,
) -> TriggerNews {
    let named = |hosts: &[NodeName]| hosts.iter().take(HOSTS_NAMED).cloned().collect();
    let first = causes.first();
    TriggerNews::Fired {
        id,
        by: by.to_owned(),
        count,
        hosts: named(&hosts.reached),
        unknown: named(&hosts.unknown),
        reason: first.and_then(|cause| cause.reason.clone()),
        chain: first.map(|cause| cause.chain.clone()).unwrap_or_default(),
    }
}
