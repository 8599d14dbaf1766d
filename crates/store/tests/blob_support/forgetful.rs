//! A real store that sometimes does not say what became of a transaction.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_store::contract::Random;
use bunraku_store::{
    KeyValue, LeaseId, LeaseStatus, Range, RangePage, Revision, SharedStore, Store, StoreError,
    Transaction, TransactionOutcome, WatchStart, WatchStream,
};

/// Of eight transactions one is not answered, and half of those are not done.
pub(crate) struct Forgetful {
    pub(crate) store: SharedStore,
    pub(crate) random: Mutex<Random>,
}

#[async_trait]
impl Store for Forgetful {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.store.get(key).await
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.store.range(range).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let choice = self.random.lock().expect("not poisoned").below(16);
        if choice > 0 {
            let outcome = self.store.commit(transaction).await?;
            if choice > 1 {
                return Ok(outcome);
            }
        }
        Err(StoreError::OutcomeUnknown("the answer was lost".into()))
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        self.store.watch(prefix, start).await
    }

    async fn lease_grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.store.lease_grant(ttl).await
    }

    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.lease_keep_alive(lease).await
    }

    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.lease_revoke(lease).await
    }

    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError> {
        self.store.lease_status(lease).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }
}
