//! A store on top of another one, which defines only the differences.

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    KeyValue, LeaseId, LeaseStatus, Range, RangePage, Revision, SharedStore, Store, StoreError,
    StoreSpace, Transaction, TransactionOutcome, WatchStart, WatchStream,
};

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// It only reads.
    Read,
    Commit,
    /// It grants, renews or ends a lease.
    Lease,
}

/// The work of one call.
pub trait CallWork<T>: Future<Output = Result<T, StoreError>> + Send {}

impl<T, F: Future<Output = Result<T, StoreError>> + Send> CallWork<T> for F {}

/// Passes everything on, except for the methods that it overrides.
pub trait Overlay: Send + Sync + 'static {
    fn inner(&self) -> &SharedStore;

    /// Wraps every call. `work` is the inner store's work, or that of the methods below.
    fn around<T: Send>(&self, _call: Call, work: impl CallWork<T>) -> impl CallWork<T> {
        work
    }

    /// Replaces [`Store::without_majority_for`].
    fn lost_majority(&self) -> Option<Duration> {
        self.inner().without_majority_for()
    }

    /// Replaces [`Store::fullness`].
    fn used_percentage(&self) -> Option<u8> {
        self.inner().fullness()
    }

    /// Replaces [`Store::commit`].
    fn do_commit(
        &self,
        transaction: Transaction,
    ) -> impl Future<Output = Result<TransactionOutcome, StoreError>> + Send {
        self.inner().commit(transaction)
    }

    /// Replaces [`Store::get`].
    fn do_get(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Option<KeyValue>, StoreError>> + Send {
        async move { self.inner().get(key).await }
    }

    /// Replaces [`Store::range`].
    fn do_range(&self, range: Range) -> impl Future<Output = Result<RangePage, StoreError>> + Send {
        self.inner().range(range)
    }

    /// Replaces [`Store::watch`].
    fn do_watch(
        &self,
        prefix: &str,
        start: WatchStart,
    ) -> impl Future<Output = Result<WatchStream, StoreError>> + Send {
        async move { self.inner().watch(prefix, start).await }
    }
}

#[async_trait]
impl<O: Overlay> Store for O {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.around(Call::Read, self.do_get(key)).await
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.around(Call::Read, self.do_range(range)).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        self.around(Call::Commit, self.do_commit(transaction)).await
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        self.around(Call::Read, self.do_watch(prefix, start)).await
    }

    fn fullness(&self) -> Option<u8> {
        self.used_percentage()
    }

    fn space(&self) -> Option<StoreSpace> {
        self.inner().space()
    }

    async fn observe_space(&self) -> Result<Option<StoreSpace>, StoreError> {
        self.around(Call::Read, self.inner().observe_space()).await
    }

    async fn reclaim_space(&self) -> Result<(), StoreError> {
        self.around(Call::Read, self.inner().reclaim_space()).await
    }

    fn without_majority_for(&self) -> Option<Duration> {
        self.lost_majority()
    }

    async fn lease_grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.around(Call::Lease, self.inner().lease_grant(ttl))
            .await
    }

    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.around(Call::Lease, self.inner().lease_keep_alive(lease))
            .await
    }

    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.around(Call::Lease, self.inner().lease_revoke(lease))
            .await
    }

    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError> {
        self.around(Call::Read, self.inner().lease_status(lease))
            .await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.around(Call::Read, self.inner().compact(revision))
            .await
    }
}
