//! Batching of firings: a thousand firings at one node take a few transactions.
//!
//! A caller leaves its causes in the node's lane and waits for its turn. The
//! caller whose turn it is writes everything in the lane at once. The transaction
//! detects firings through other servers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use bunraku_model::{NodeName, TriggerName};
use bunraku_store::Transaction;
use bunraku_wire::api::TriggerCause;
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::notify::{HostNotice, Notification, QueuedFiring};
use super::{Firing, Triggers};
use bunraku_control::ServiceError;

/// The number of lanes. Writes for different lanes run concurrently, and each lane has one writer.
const LANES: usize = 64;

/// Attempts per look at the queue. Other servers rarely write to the same node.
const ATTEMPTS: usize = 8;

pub(super) struct Lanes([Lane; LANES]);

#[derive(Default)]
struct Lane {
    left: Mutex<Vec<PendingFiring>>,
    turn: tokio::sync::Mutex<()>,
}

/// A firing left in a lane.
struct PendingFiring {
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
    fn leave(&self, left: PendingFiring) {
        self.lock().push(left);
    }

    /// Takes all firings from the lane, by host.
    fn take(&self) -> BTreeMap<NodeName, Vec<PendingFiring>> {
        let mut by_host: BTreeMap<NodeName, Vec<PendingFiring>> = BTreeMap::new();
        for left in std::mem::take(&mut *self.lock()) {
            by_host.entry(left.host.clone()).or_default().push(left);
        }
        by_host
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<PendingFiring>> {
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
        lane.leave(PendingFiring {
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
            message: "another firing for the same node failed; fire again".to_owned(),
        })
    }

    async fn write_left(
        &self,
        host: &NodeName,
        left: &[PendingFiring],
    ) -> Result<bool, ServiceError> {
        let firings = left.iter().map(|left| QueuedFiring {
            trigger: &left.trigger,
            causes: &left.causes,
            expires: left.expires,
        });
        let notification = Notification {
            notices: vec![HostNotice {
                host,
                firings: firings.collect(),
            }],
            by: left.first().map_or("", |left| &*left.by),
            environment: None,
        };
        loop {
            let notified = self.notify(&notification, ATTEMPTS, |_| Transaction::new());
            if let Some(notified) = notified.await? {
                return Ok(!notified.reached.is_empty());
            }
        }
    }
}
