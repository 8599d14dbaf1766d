//! Planted bugs: removes a guard from real servers, to test whether the checker notices.
//!
//! The guards belong to the product, which knows nothing about this module. A
//! planted bug sits between the services and their store, or is a setting that nobody would choose.

use std::sync::Arc;

use bunraku::Wiring;
use bunraku_store::testing::{DelayedStore, Overlay};
use bunraku_store::{Revision, SharedStore, StoreError, Transaction, TransactionOutcome};

/// The guard to remove from the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum RemovedGuard {
    /// None: servers run unchanged
    #[default]
    Nothing,
    /// Write locks and once tasks without comparing revisions
    Compares,
    /// Record certificates without comparing whether their name was revoked
    Fence,
    /// Acknowledge writes that failed, on the server with the embedded store
    WriteErrors,
    /// Wait for hours until an agent that does not answer is lost
    Liveness,
    /// Let nodes write as much as they like
    Budgets,
    /// Lose some of the audit records of changes that were made
    Records,
}

const ALL: [RemovedGuard; 7] = [
    RemovedGuard::Nothing,
    RemovedGuard::Compares,
    RemovedGuard::Fence,
    RemovedGuard::WriteErrors,
    RemovedGuard::Liveness,
    RemovedGuard::Budgets,
    RemovedGuard::Records,
];

impl RemovedGuard {
    /// Returns the argument that makes this program run as Bunraku with this bug.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "as-bunraku",
            Self::Compares => "as-bunraku-without-compares",
            Self::Fence => "as-bunraku-without-fence",
            Self::WriteErrors => "as-bunraku-without-write-errors",
            Self::Liveness => "as-bunraku-without-liveness",
            Self::Budgets => "as-bunraku-without-budgets",
            Self::Records => "as-bunraku-without-records",
        }
    }

    /// Returns the guard to remove from the servers of the cluster.
    pub(crate) fn in_cluster(self) -> Self {
        match self {
            Self::WriteErrors => Self::Nothing,
            other => other,
        }
    }

    /// Returns the value of `--plant`.
    pub fn as_value(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }

    pub fn by_word(word: &str) -> Option<Self> {
        ALL.into_iter().find(|plant| plant.name() == word)
    }

    /// Returns settings without the guard, made from those with it.
    pub(crate) fn settings(self, usual: &str) -> String {
        let change = match self {
            Self::Liveness => ("agent_silence = \"10s\"", "agent_silence = \"10h\""),
            Self::Budgets => ("node_request_burst = 20", "node_request_burst = 20000"),
            _ => return usual.to_owned(),
        };
        assert!(usual.contains(change.0), "the settings have the guard");
        usual.replace(change.0, change.1)
    }

    /// Every server can be late (see [`crate::late`]); a bug may be below that.
    pub fn wiring(self) -> Wiring {
        let store: fn(SharedStore) -> SharedStore = match self {
            Self::Nothing | Self::Liveness | Self::Budgets => delayed,
            Self::Compares => |inner| {
                let prefixes = &["locks/", "once/"];
                delayed(Arc::new(CarelessStore { inner, prefixes }))
            },
            Self::Fence => |inner| {
                let prefixes = &["certificates/"];
                delayed(Arc::new(CarelessStore { inner, prefixes }))
            },
            Self::WriteErrors => |inner| delayed(Arc::new(BoastfulStore { inner })),
            Self::Records => |inner| delayed(Arc::new(ForgetfulStore { inner })),
        };
        Wiring {
            store,
            delay: Some(crate::late::delay),
        }
    }
}

fn delayed(inner: SharedStore) -> SharedStore {
    Arc::new(DelayedStore::new(inner, Arc::new(crate::late::delay)))
}

/// A store that skips important comparisons.
struct CarelessStore {
    inner: SharedStore,
    /// Where the keys of these transactions begin.
    prefixes: &'static [&'static str],
}

impl CarelessStore {
    fn is_cared_for(&self, transaction: &Transaction) -> bool {
        use bunraku_store::Operation::{Delete, DeletePrefix, Put};
        transaction.operations.iter().any(|operation| {
            let (Put { key, .. } | Delete { key } | DeletePrefix { prefix: key }) = operation;
            self.prefixes.iter().any(|prefix| key.starts_with(prefix))
        })
    }
}

/// A store that acknowledges writes that failed.
struct BoastfulStore {
    inner: SharedStore,
}

impl Overlay for BoastfulStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let outcome = self.inner.commit(transaction).await;
        Ok(outcome.unwrap_or(TransactionOutcome::Committed(Revision(1))))
    }
}

impl Overlay for CarelessStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(
        &self,
        mut transaction: Transaction,
    ) -> Result<TransactionOutcome, StoreError> {
        if self.is_cared_for(&transaction) {
            transaction.compares.clear();
        }
        self.inner.commit(transaction).await
    }
}

/// A store that loses some audit records before they are in the chain.
struct ForgetfulStore {
    inner: SharedStore,
}

/// Returns true for about one of four records.
fn is_forgotten(operation: &bunraku_store::Operation) -> bool {
    let bunraku_store::Operation::Put { key, .. } = operation else {
        return false;
    };
    key.starts_with("audit/inbox/") && key.ends_with(['0', '4', '8', 'c'])
}

impl Overlay for ForgetfulStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(
        &self,
        mut transaction: Transaction,
    ) -> Result<TransactionOutcome, StoreError> {
        transaction.operations.retain(|it| !is_forgotten(it));
        self.inner.commit(transaction).await
    }
}
