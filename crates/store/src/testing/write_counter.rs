//! A store that counts its writes, and the keys that it reads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Call, CallWork, Overlay};
use crate::{KeyValue, Range, RangePage, SharedStore, StoreError, Transaction, TransactionOutcome};

/// Counts commits and changes of leases: each is a proposal in etcd's log. Also counts requests
/// that only read, and the keys that they return or look for.
pub struct WriteCounter {
    inner: SharedStore,
    writes: AtomicUsize,
    requests: AtomicUsize,
    keys_read: AtomicUsize,
}

impl WriteCounter {
    pub fn new(inner: SharedStore) -> Self {
        Self {
            inner,
            writes: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            keys_read: AtomicUsize::new(0),
        }
    }

    /// Returns the number of writes since the last call.
    pub fn take(&self) -> usize {
        self.writes.swap(0, Ordering::Relaxed)
    }

    /// Returns the number of requests that only read since the last call.
    pub fn take_requests(&self) -> usize {
        self.requests.swap(0, Ordering::Relaxed)
    }

    /// Returns the number of keys that were read since the last call.
    pub fn take_keys_read(&self) -> usize {
        self.keys_read.swap(0, Ordering::Relaxed)
    }

    fn count_read(&self, keys: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.keys_read.fetch_add(keys, Ordering::Relaxed);
    }
}

impl Overlay for WriteCounter {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send>(&self, call: Call, work: impl CallWork<T>) -> Result<T, StoreError> {
        if call == Call::Lease {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        work.await
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        // etcd answers a transaction that cannot write without a proposal.
        if transaction.operations.is_empty() {
            self.count_read(transaction.reads_on_failure.len());
        } else {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.commit(transaction).await
    }

    async fn do_get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.count_read(1);
        self.inner.get(key).await
    }

    async fn do_range(&self, range: Range) -> Result<RangePage, StoreError> {
        let page = self.inner.range(range).await?;
        self.count_read(page.items.len());
        Ok(page)
    }
}
