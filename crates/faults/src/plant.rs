//! Bugs to plant: a guard is taken away from real servers, so that it can be
//! seen whether the checker finds out.
//!
//! The guards themselves are the product's; nothing in it knows of this. A
//! planted bug stands between the services and their store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bunraku::Wiring;
use bunraku_store::{
    KeyValue, LeaseId, LeaseStatus, Range, RangePage, Revision, SharedStore, Store, StoreError,
    Transaction, TransactionOutcome, WatchStart, WatchStream,
};

/// What is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Plant {
    /// Nothing: servers are as people run them.
    #[default]
    Nothing,
    /// Locks and things done once are written without comparing.
    Compares,
}

impl Plant {
    /// The word that makes this program a Bunraku like that.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nothing => "as-bunraku",
            Self::Compares => "as-bunraku-without-compares",
        }
    }

    pub fn by_word(word: &str) -> Option<Self> {
        [Self::Nothing, Self::Compares]
            .into_iter()
            .find(|plant| plant.word() == word)
    }

    pub fn wiring(self) -> Wiring {
        match self {
            Self::Nothing => Wiring::default(),
            Self::Compares => Wiring {
                store: |inner| Arc::new(Careless { inner }),
            },
        }
    }
}

/// A store that does not compare where it matters.
struct Careless {
    inner: SharedStore,
}

fn is_cared_for(transaction: &Transaction) -> bool {
    use bunraku_store::Operation::{Delete, DeletePrefix, Put};
    transaction.operations.iter().any(|operation| {
        let (Put { key, .. } | Delete { key } | DeletePrefix { prefix: key }) = operation;
        key.starts_with("locks/") || key.starts_with("once/")
    })
}

#[async_trait]
impl Store for Careless {
    async fn commit(&self, mut transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        if is_cared_for(&transaction) {
            transaction.compares.clear();
        }
        self.inner.commit(transaction).await
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key).await
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.inner.range(range).await
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
