//! One server's connection to history: delayed and cut like its connection to the store.

use std::sync::Arc;

use bunraku_store::Transaction;
use bunraku_store::history::{
    Appended, EventChunk, FoundRecord, History, HistoryAppend, HistoryError, HistoryFilter,
    HistoryPage, HistoryPart, HistoryRecord, RecordId, SharedHistory,
};
use jiff::Timestamp;

use crate::jitter_store::JitterStore;

pub(crate) struct JitterHistory {
    inner: SharedHistory,
    /// The connection of the same server, which dies with it.
    store: Arc<JitterStore>,
}

impl JitterHistory {
    pub(crate) fn new(inner: SharedHistory, store: Arc<JitterStore>) -> Self {
        Self { inner, store }
    }
}

#[async_trait::async_trait]
impl History for JitterHistory {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    async fn append(
        &self,
        transaction: Transaction,
        append: HistoryAppend,
    ) -> Result<(Transaction, Appended), HistoryError> {
        self.store
            .pass(self.inner.append(transaction, append))
            .await
    }

    async fn import(
        &self,
        record: HistoryRecord,
        also: Vec<String>,
        events: Vec<EventChunk>,
    ) -> Result<(), HistoryError> {
        self.store
            .pass(self.inner.import(record, also, events))
            .await
    }

    async fn close(&self, record: HistoryRecord) -> Result<(), HistoryError> {
        self.store.pass(self.inner.close(record)).await
    }

    async fn record(&self, id: &RecordId) -> Result<Option<HistoryRecord>, HistoryError> {
        self.store.pass(self.inner.record(id)).await
    }

    async fn aliases(&self, record: &HistoryRecord) -> Result<Vec<String>, HistoryError> {
        self.store.pass(self.inner.aliases(record)).await
    }

    async fn events(
        &self,
        id: &RecordId,
        at: Timestamp,
        from: u64,
    ) -> Result<Vec<EventChunk>, HistoryError> {
        self.store.pass(self.inner.events(id, at, from)).await
    }

    async fn list(&self, filter: &HistoryFilter) -> Result<HistoryPage, HistoryError> {
        self.store.pass(self.inner.list(filter)).await
    }

    async fn find(&self, prefix: &str, limit: usize) -> Result<Vec<FoundRecord>, HistoryError> {
        self.store.pass(self.inner.find(prefix, limit)).await
    }

    async fn remove(&self, id: &RecordId) -> Result<(), HistoryError> {
        self.store.pass(self.inner.remove(id)).await
    }

    async fn remove_owner(&self, owner: &str) -> Result<(), HistoryError> {
        self.store.pass(self.inner.remove_owner(owner)).await
    }

    async fn drop_before(
        &self,
        part: HistoryPart,
        before: Timestamp,
    ) -> Result<usize, HistoryError> {
        self.store.pass(self.inner.drop_before(part, before)).await
    }

    async fn events_since(&self) -> Result<Option<Timestamp>, HistoryError> {
        self.store.pass(self.inner.events_since()).await
    }

    async fn check(&self, now: Timestamp) -> Result<(), HistoryError> {
        self.store.pass(self.inner.check(now)).await
    }
}
