//! A real store that sometimes does not return the outcome of a transaction.

use std::sync::Mutex;

use bunraku_store::contract::Random;
use bunraku_store::testing::Overlay;
use bunraku_store::{SharedStore, StoreError, Transaction, TransactionOutcome};

/// One of eight transactions is not answered, and half of those are not done.
pub(crate) struct Forgetful {
    pub(crate) store: SharedStore,
    pub(crate) random: Mutex<Random>,
}

impl Overlay for Forgetful {
    fn inner(&self) -> &SharedStore {
        &self.store
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let choice = self.random.lock().expect("not poisoned").below(16);
        if choice > 0 {
            let outcome = self.store.commit(transaction).await?;
            if choice > 1 {
                return Ok(outcome);
            }
        }
        Err(StoreError::OutcomeUnknown("the answer was lost".into()))
    }
}
