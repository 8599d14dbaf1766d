//! A thousand firings at one node, in a few transactions.
//!
//! Whoever fires leaves its causes in the node's lane and waits for its turn;
//! who has the turn writes everything that lies in the lane at once. Firings
//! through other servers are met by the transaction.

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

/// Nodes that are written for at the same time, each from one place.
const LANES: usize = 64;

pub(super) struct Lanes([Lane; LANES]);

#[derive(Default)]
struct Lane {
    left: Mutex<Vec<Left>>,
    turn: tokio::sync::Mutex<()>,
}

/// What somebody left in a lane.
struct Left {
    host: NodeName,
    trigger: TriggerName,
    causes: Vec<TriggerCause>,
    expires: Timestamp,
    by: String,
    /// Whether the node exists; nothing when it could not be written.
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

    /// Everything that was left, by host.
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
    /// Puts a firing into one host's queue. False when there is no such node.
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
                // Whoever left it may have gone; it is written all the same.
                let _ = left.written.send(exists);
            }
        }
        outcome.try_recv().map_err(|_| ServiceError::Busy {
            message: "another firing at the same node failed; fire again".to_owned(),
        })
    }

    async fn write_left(&self, host: &NodeName, left: &[Left]) -> Result<bool, ServiceError> {
        let by = left.first().map_or("", |left| &*left.by);
        // As it is nearly always: nothing waits for a node that exists.
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
