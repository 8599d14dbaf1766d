//! A store that fails at a chosen write. Either it is cut off there, like a process that was
//! killed, or the outcome of that write is unknown.
//!
//! The write itself is done or not, as configured; the caller never learns which. The inner store
//! keeps working for others.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Call, CallWork, Overlay};
use crate::{SharedStore, StoreError, Transaction, TransactionOutcome};

/// The fate of the chosen write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutPoint {
    /// It never reaches the store, and nothing does afterwards.
    Before,
    /// It is done without an answer, and nothing works afterwards.
    After,
    /// It is done or not, and its outcome is unknown; later calls work. This is the behaviour of a
    /// store that changes its leader.
    Unsure { done: bool },
}

/// Passes everything on until its write number `at` (from 0).
pub struct CutStore {
    inner: SharedStore,
    at: u64,
    cut: CutPoint,
    /// Counts lease operations as writes too.
    leases_count: bool,
    writes: AtomicU64,
    largest: AtomicUsize,
}

impl CutStore {
    pub fn new(inner: SharedStore, at: u64, cut: CutPoint) -> Self {
        Self {
            inner,
            at,
            cut,
            leases_count: true,
            writes: AtomicU64::new(0),
            largest: AtomicUsize::new(0),
        }
    }

    /// Creates a store that counts only transactions.
    pub fn at_commit(inner: SharedStore, at: u64, cut: CutPoint) -> Self {
        Self {
            leases_count: false,
            ..Self::new(inner, at, cut)
        }
    }

    /// Returns the number of attempted writes.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Returns the largest number of operations in one transaction.
    pub fn largest(&self) -> usize {
        self.largest.load(Ordering::SeqCst)
    }

    /// Returns whether the chosen write was reached.
    pub fn is_reached(&self) -> bool {
        self.writes() > self.at
    }

    pub fn is_cut(&self) -> bool {
        self.is_reached() && !matches!(self.cut, CutPoint::Unsure { .. })
    }

    /// Counts a write. `None`: it passes as usual.
    fn count(&self) -> Result<Option<CutPoint>, StoreError> {
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        match (number == self.at, number > self.at && self.is_cut()) {
            (true, _) => Ok(Some(self.cut)),
            (false, true) => Err(closed_error()),
            (false, false) => Ok(None),
        }
    }

    /// Performs a write, or cuts it off.
    async fn write<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.count()? {
            None => work.await,
            Some(CutPoint::Before) => Err(closed_error()),
            Some(CutPoint::After) => {
                work.await?;
                Err(closed_error())
            }
            Some(CutPoint::Unsure { done }) => {
                if done {
                    work.await?;
                }
                Err(StoreError::OutcomeUnknown("the leader changed".into()))
            }
        }
    }
}

/// A permanent error, so that nobody keeps trying: a killed process does not either.
fn closed_error() -> StoreError {
    StoreError::Closed
}

impl Overlay for CutStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send>(&self, call: Call, work: impl CallWork<T>) -> Result<T, StoreError> {
        match call {
            Call::Commit => self.write(work).await,
            Call::Lease if self.leases_count => self.write(work).await,
            Call::Lease | Call::Read if self.is_cut() => Err(closed_error()),
            Call::Lease | Call::Read => work.await,
        }
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let operations = transaction.operations.len();
        self.largest.fetch_max(operations, Ordering::SeqCst);
        self.inner.commit(transaction).await
    }
}
