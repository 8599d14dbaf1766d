//! A store with a concurrent writer that always wins: just before the user's first write, something
//! else happens in the inner store.
//!
//! So the data that the user read is outdated when it writes, every time and not by luck.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use super::Overlay;
use crate::{SharedStore, StoreError, Transaction, TransactionOutcome};

type Interference = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Passes everything on, and does something else before the first write.
pub struct InterferingStore {
    inner: SharedStore,
    meddling: Mutex<Option<Interference>>,
}

impl InterferingStore {
    pub fn new(inner: SharedStore, meddling: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            inner,
            meddling: Mutex::new(Some(Box::pin(meddling))),
        }
    }

    /// Returns whether there was a write.
    pub fn is_meddled(&self) -> bool {
        self.lock().is_none()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Interference>> {
        self.meddling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Overlay for InterferingStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let meddling = self.lock().take();
        if let Some(meddling) = meddling {
            meddling.await;
        }
        self.inner.commit(transaction).await
    }
}
