//! A store that keeps a reserve: when it is full, writes that add data are refused.
//!
//! Deletions and coordination (leases, locks, claims, queues) continue, so the servers stay
//! available and can free space. The caller decides which keys hold data that adds up.
//!
//! The space is known from the last observation. Between two observations, this store counts what
//! it adds, and observes again before that can matter. Each server counts only its own writes, so
//! it observes after using a quarter of the room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::{
    KeyValue, LeaseId, LeaseStatus, Operation, Range, RangePage, Revision, SharedStore, Store,
    StoreError, StoreSpace, Transaction, TransactionOutcome, WatchStart, WatchStream,
};

/// While the store is full, its space is observed at most this often on behalf of writers.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// etcd reports a size that is up to this old.
const UNTIL_COUNTED: Duration = Duration::from_millis(150);
/// Fewer added bytes than this do not require an observation.
const NEGLIGIBLE: u64 = 64 << 10;

/// Passes everything on, except for writes that the store has no room for.
pub struct ReserveStore {
    inner: SharedStore,
    adds_data: fn(&str) -> bool,
    /// The bytes added since the last observation.
    added: AtomicU64,
    /// The time of the last observation on behalf of a writer.
    observed: Mutex<Option<Instant>>,
}

impl ReserveStore {
    /// `adds_data` returns whether a key holds data that adds up. A transaction that writes such a
    /// key is refused while only the reserve is left.
    pub fn new(inner: SharedStore, adds_data: fn(&str) -> bool) -> Self {
        Self {
            inner,
            adds_data,
            added: AtomicU64::new(0),
            observed: Mutex::new(None),
        }
    }

    async fn admit(&self, transaction: &Transaction) -> Result<(), StoreError> {
        let Some(bytes) = added_bytes(transaction, self.adds_data) else {
            return Ok(());
        };
        // Without a majority, the write fails anyway, and says why.
        if self.is_covered(bytes) || self.inner.without_majority_for().is_some() {
            return Ok(());
        }
        // One writer observes; the others use the result.
        let mut observed = self.observed.lock().await;
        let is_recent = observed.is_some_and(|at| at.elapsed() < LOOK_AGAIN);
        let known = self.inner.space();
        let space = match known {
            Some(full) if full.is_full() && is_recent => Some(full),
            _ if self.is_covered(bytes) => return Ok(()),
            _ => {
                tokio::time::sleep(UNTIL_COUNTED).await;
                // If the store cannot say, it decides about the write itself, and says why.
                let Ok(space) = self.inner.observe_space().await else {
                    return Ok(());
                };
                *observed = Some(Instant::now());
                self.added.store(bytes, Ordering::Relaxed);
                space
            }
        };
        match space {
            Some(space) if is_too_small(&space, bytes) => Err(StoreError::Full(space.to_string())),
            _ => Ok(()),
        }
    }

    /// Returns whether the last observation leaves no doubt that there is room for this and for
    /// what was added since. If so, counts it.
    fn is_covered(&self, bytes: u64) -> bool {
        let added = self.added.load(Ordering::Relaxed).saturating_add(bytes);
        let space = self.inner.space();
        let is_covered = space.is_some_and(|space| !is_in_doubt(&space, added));
        if is_covered {
            self.added.fetch_add(bytes, Ordering::Relaxed);
        }
        is_covered
    }
}

/// Returns the size of the values that a transaction adds, if it writes a key that holds data.
fn added_bytes(transaction: &Transaction, adds_data: fn(&str) -> bool) -> Option<u64> {
    let puts = || transaction.operations.iter().filter_map(put);
    let adds = puts().any(|(key, _)| adds_data(key));
    adds.then(|| puts().map(|(key, value)| (key.len() + value) as u64).sum())
}

fn put(operation: &Operation) -> Option<(&str, usize)> {
    match operation {
        Operation::Put { key, value, .. } => Some((key, value.len())),
        Operation::Delete { .. } | Operation::DeletePrefix { .. } => None,
    }
}

/// Returns whether the store may be full after `added` more bytes.
fn is_in_doubt(space: &StoreSpace, added: u64) -> bool {
    let room = space.room_bytes();
    space.is_full() || room.is_some_and(|room| added > NEGLIGIBLE.max(room / 4))
}

fn is_too_small(space: &StoreSpace, bytes: u64) -> bool {
    space.is_full() || space.room_bytes().is_some_and(|room| bytes > room)
}

#[async_trait]
impl Store for ReserveStore {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key).await
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.inner.range(range).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        self.admit(&transaction).await?;
        self.inner.commit(transaction).await
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        self.inner.watch(prefix, start).await
    }

    fn space(&self) -> Option<StoreSpace> {
        self.inner.space()
    }

    async fn observe_space(&self) -> Result<Option<StoreSpace>, StoreError> {
        self.inner.observe_space().await
    }

    async fn reclaim_space(&self) -> Result<(), StoreError> {
        self.inner.reclaim_space().await
    }

    fn fullness(&self) -> Option<u8> {
        self.inner.fullness()
    }

    fn without_majority_for(&self) -> Option<Duration> {
        self.inner.without_majority_for()
    }

    async fn lease_grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.inner.lease_grant(ttl).await
    }

    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.inner.lease_keep_alive(lease).await
    }

    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.inner.lease_revoke(lease).await
    }

    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError> {
        self.inner.lease_status(lease).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.inner.compact(revision).await
    }
}
