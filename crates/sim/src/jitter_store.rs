//! One server's way to the store: each call takes a while, before and after.
//!
//! So work is interleaved in every way that chance finds, and a server that
//! is killed stops between any two of its calls. Nothing is made up: what a
//! call does, the store underneath does.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bunraku_store::{
    KeyValue, LeaseId, LeaseStatus, Range, RangePage, Revision, SharedStore, Store, StoreError,
    Transaction, TransactionOutcome, WatchStart, WatchStream,
};

use crate::Chance;
use crate::strike::{Strike, When};

const LONGEST: Duration = Duration::from_millis(3);

pub(crate) struct JitterStore {
    inner: SharedStore,
    chance: Chance,
    strike: Arc<Strike>,
    /// The server is killed: nothing of it goes on.
    dead: AtomicBool,
}

impl JitterStore {
    pub(crate) fn new(inner: SharedStore, chance: Chance, strike: Arc<Strike>) -> Self {
        Self {
            inner,
            chance,
            strike,
            dead: AtomicBool::new(false),
        }
    }

    async fn pass<T>(&self, work: impl Future<Output = T>) -> T {
        self.alive().await;
        let struck = self.strike.count();
        tokio::time::sleep(self.chance.up_to(LONGEST)).await;
        self.alive().await;
        if struck == Some(When::Before) {
            self.die().await;
        }
        let outcome = work.await;
        if struck == Some(When::After) {
            self.die().await;
        }
        tokio::time::sleep(self.chance.up_to(LONGEST)).await;
        self.alive().await;
        outcome
    }

    async fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.strike.die().await;
    }

    /// Resolves only for the living.
    async fn alive(&self) {
        if self.dead.load(Ordering::SeqCst) {
            pending().await
        }
    }
}

#[async_trait]
impl Store for JitterStore {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.pass(self.inner.get(key)).await
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.pass(self.inner.range(range)).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        self.pass(self.inner.commit(transaction)).await
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        self.pass(self.inner.watch(prefix, start)).await
    }

    async fn lease_grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.pass(self.inner.lease_grant(ttl)).await
    }

    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.pass(self.inner.lease_keep_alive(lease)).await
    }

    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.pass(self.inner.lease_revoke(lease)).await
    }

    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError> {
        self.pass(self.inner.lease_status(lease)).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.pass(self.inner.compact(revision)).await
    }
}
