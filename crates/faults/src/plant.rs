//! Planted bugs: removes a guard from real servers, to test whether the checker notices.
//!
//! The guards belong to the product, which knows nothing about this module. A
//! planted bug sits between the services and their store.

use std::sync::Arc;

use bunraku::Wiring;
use bunraku_store::testing::Overlay;
use bunraku_store::{SharedStore, StoreError, Transaction, TransactionOutcome};

/// The guard to remove from the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum RemovedGuard {
    /// None: servers run unchanged
    #[default]
    Nothing,
    /// Write locks and once tasks without comparing revisions
    Compares,
}

impl RemovedGuard {
    /// Returns the argument that makes this program run as Bunraku with this bug.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "as-bunraku",
            Self::Compares => "as-bunraku-without-compares",
        }
    }

    pub fn by_word(word: &str) -> Option<Self> {
        [Self::Nothing, Self::Compares]
            .into_iter()
            .find(|plant| plant.name() == word)
    }

    pub fn wiring(self) -> Wiring {
        match self {
            Self::Nothing => Wiring::default(),
            Self::Compares => Wiring {
                store: |inner| Arc::new(CarelessStore { inner }),
                ..Wiring::default()
            },
        }
    }
}

/// A store that skips important comparisons.
struct CarelessStore {
    inner: SharedStore,
}

fn is_cared_for(transaction: &Transaction) -> bool {
    use bunraku_store::Operation::{Delete, DeletePrefix, Put};
    transaction.operations.iter().any(|operation| {
        let (Put { key, .. } | Delete { key } | DeletePrefix { prefix: key }) = operation;
        key.starts_with("locks/") || key.starts_with("once/")
    })
}

impl Overlay for CarelessStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(
        &self,
        mut transaction: Transaction,
    ) -> Result<TransactionOutcome, StoreError> {
        if is_cared_for(&transaction) {
            transaction.compares.clear();
        }
        self.inner.commit(transaction).await
    }
}
