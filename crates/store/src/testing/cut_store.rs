//! A store that is cut off at a chosen write: how a process looks that was
//! killed there.
//!
//! The write itself is done or not, as asked; whoever asked never hears of it,
//! and nothing works for him afterwards. What is underneath goes on for others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    KeyValue, LeaseId, LeaseStatus, Range, RangePage, Revision, SharedStore, Store, StoreError,
    Transaction, TransactionOutcome, WatchStart, WatchStream,
};

/// What becomes of the write at which the store is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// It never reaches the store.
    Before,
    /// It is done, and nobody hears of it.
    After,
}

/// Passes everything on until its write number `at` (from 0).
pub struct CutStore {
    inner: SharedStore,
    at: u64,
    cut: Cut,
    writes: AtomicU64,
}

impl CutStore {
    pub fn new(inner: SharedStore, at: u64, cut: Cut) -> Self {
        Self {
            inner,
            at,
            cut,
            writes: AtomicU64::new(0),
        }
    }

    /// Writes that were tried.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    pub fn is_cut(&self) -> bool {
        self.writes() > self.at
    }

    fn alive(&self) -> Result<(), StoreError> {
        match self.is_cut() {
            true => Err(gone()),
            false => Ok(()),
        }
    }

    /// Counts a write. `None`: it goes through as usual.
    fn count(&self) -> Result<Option<Cut>, StoreError> {
        match self.writes.fetch_add(1, Ordering::SeqCst) {
            number if number < self.at => Ok(None),
            number if number == self.at => Ok(Some(self.cut)),
            _ => Err(gone()),
        }
    }

    /// Does a write, or half of it.
    async fn write<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.count()? {
            None => work.await,
            Some(Cut::Before) => Err(gone()),
            Some(Cut::After) => {
                work.await?;
                Err(gone())
            }
        }
    }
}

/// Lasting, so that nobody goes on trying: a killed process does not either.
fn gone() -> StoreError {
    StoreError::Closed
}

#[async_trait]
impl Store for CutStore {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.alive()?;
        self.inner.get(key).await
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.alive()?;
        self.inner.range(range).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        self.write(self.inner.commit(transaction)).await
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        self.alive()?;
        self.inner.watch(prefix, start).await
    }

    async fn lease_grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.write(self.inner.lease_grant(ttl)).await
    }

    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.write(self.inner.lease_keep_alive(lease)).await
    }

    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.write(self.inner.lease_revoke(lease)).await
    }

    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError> {
        self.alive()?;
        self.inner.lease_status(lease).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.alive()?;
        self.inner.compact(revision).await
    }
}
