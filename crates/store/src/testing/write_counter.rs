//! A store that counts its writes.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Call, CallWork, Overlay};
use crate::{SharedStore, StoreError};

/// Counts commits and changes of leases: each is a proposal in etcd's log.
pub struct WriteCounter {
    inner: SharedStore,
    writes: AtomicUsize,
}

impl WriteCounter {
    pub fn new(inner: SharedStore) -> Self {
        Self {
            inner,
            writes: AtomicUsize::new(0),
        }
    }

    /// Returns the number of writes since the last call.
    pub fn take(&self) -> usize {
        self.writes.swap(0, Ordering::Relaxed)
    }
}

impl Overlay for WriteCounter {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send>(&self, call: Call, work: impl CallWork<T>) -> Result<T, StoreError> {
        if call != Call::Read {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        work.await
    }
}
