//! Batching of firings: a thousand firings at one node take a few transactions.
//!
//! A caller leaves its causes in the node's lane and waits for its turn. The
//! caller whose turn it is writes everything in the lane at once. The transaction
//! detects firings through other servers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use bunraku_model::{NodeName, TriggerName};
use bunraku_store::{Transaction, TransactionOutcome};
use bunraku_wire::api::TriggerCause;
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::node_queue::NodeQueue;
use super::{Firing, Triggers};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The number of lanes. Writes for different lanes run concurrently, and each lane has one writer.
const LANES: usize = 64;

pub(super) struct Lanes([Lane; LANES]);

#[derive(Default)]
struct Lane {
    left: Mutex<Vec<Left>>,
    turn: tokio::sync::Mutex<()>,
}

/// A firing left in a lane.
struct Left {
    host: NodeName,
    trigger: TriggerName,
    causes: Vec<TriggerCause>,
    expires: Timestamp,
    by: String,
    /// Receives whether the node exists; dropped if the write failed.
    written: oneshot::Sender<bool>,
}

impl Default for Lanes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Lane::default()))
    }
}

impl Lanes {
    fn of(&self, host: &NodeName) -> &Lane {
        let mut hasher = DefaultHasher::new();
        host.hash(&mut hasher);
        let index = hasher.finish() % LANES as u64;
        &self.0[usize::try_from(index).unwrap_or(0)]
    }
}

impl Lane {
    fn leave(&self, left: Left) {
        self.lock().push(left);
    }

    /// Takes all firings from the lane, by host.
    fn take(&self) -> BTreeMap<NodeName, Vec<Left>> {
        let mut by_host: BTreeMap<NodeName, Vec<Left>> = BTreeMap::new();
        for left in std::mem::take(&mut *self.lock()) {
            by_host.entry(left.host.clone()).or_default().push(left);
        }
        by_host
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Left>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Triggers {
    /// Puts a firing into one host's queue. Returns false if there is no such node.
    pub(super) async fn send_one(
        &self,
        firing: &Firing<'_>,
        host: &NodeName,
        expires: Timestamp,
    ) -> Result<bool, ServiceError> {
        let lane = self.lanes.of(host);
        let (written, mut outcome) = oneshot::channel();
        lane.leave(Left {
            host: host.clone(),
            trigger: firing.trigger.clone(),
            causes: firing.causes.clone(),
            expires,
            by: firing.by.clone(),
            written,
        });
        let _turn = lane.turn.lock().await;
        if let Ok(exists) = outcome.try_recv() {
            return Ok(exists);
        }
        for (host, left) in lane.take() {
            let exists = self.write_left(&host, &left).await?;
            for left in left {
                // The caller may be gone; the firing is written all the same.
                let _ = left.written.send(exists);
            }
        }
        outcome.try_recv().map_err(|_| ServiceError::Busy {
            message: "another firing at the same node failed; fire again".to_owned(),
        })
    }

    async fn write_left(&self, host: &NodeName, left: &[Left]) -> Result<bool, ServiceError> {
        let by = left.first().map_or("", |left| &*left.by);
        // The usual case: the node exists and nothing waits for it.
        let mut entry = None;
        loop {
            let mut queue: NodeQueue = match &entry {
                None => NodeQueue::default(),
                Some(entry) => document::decode(entry)?,
            };
            let mut added = false;
            for left in left {
                added |= queue.add(&left.trigger, &left.causes, left.expires);
            }
            if !added {
                return Ok(true);
            }
            let transaction = self
                .write_queue(Transaction::new(), host, entry.as_ref(), queue, by)
                .read_on_failure(keys::trigger_queue(host))
                .read_on_failure(keys::node_record(host));
            match self.store.commit(transaction).await? {
                TransactionOutcome::Committed(_) => return Ok(true),
                TransactionOutcome::Refused(found) => {
                    let mut found = found.into_iter();
                    entry = found.next().flatten();
                    if found.next().flatten().is_none() {
                        return Ok(false);
                    }
                }
            }
        }
    }
}
