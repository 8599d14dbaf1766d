//! A store in which somebody else is quicker: just before the first write of
//! whoever has it, something else happens underneath.
//!
//! What was read is then old when it is written, every time and not by luck.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    KeyValue, LeaseId, LeaseStatus, Range, RangePage, Revision, SharedStore, Store, StoreError,
    Transaction, TransactionOutcome, WatchStart, WatchStream,
};

type Meddling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Passes everything on, after something else at the first write.
pub struct MeddledStore {
    inner: SharedStore,
    meddling: Mutex<Option<Meddling>>,
}

impl MeddledStore {
    pub fn new(inner: SharedStore, meddling: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            inner,
            meddling: Mutex::new(Some(Box::pin(meddling))),
        }
    }

    /// Whether there was a write.
    pub fn is_meddled(&self) -> bool {
        self.lock().is_none()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Meddling>> {
        self.meddling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MeddledStore {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key).await
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.inner.range(range).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let meddling = self.lock().take();
        if let Some(meddling) = meddling {
            meddling.await;
        }
        self.inner.commit(transaction).await
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        self.inner.watch(prefix, start).await
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
