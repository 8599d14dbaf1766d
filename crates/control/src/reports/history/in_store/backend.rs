//! The state store as a backend of history.

use async_trait::async_trait;
use bunraku_model::NodeName;
use bunraku_store::history::{
    Appended, EventChunk, FoundRecord, History, HistoryAppend, HistoryError, HistoryFilter,
    HistoryPage, HistoryPart, HistoryRecord, RecordId,
};
use bunraku_store::{Range, StoreError, Transaction};
use jiff::Timestamp;

use super::{ReportPlace, StoreHistory, failed, parse};
use crate::{document, keys};

#[async_trait]
impl History for StoreHistory {
    fn kind(&self) -> &'static str {
        "store"
    }

    async fn append(
        &self,
        transaction: Transaction,
        append: HistoryAppend,
    ) -> Result<(Transaction, Appended), HistoryError> {
        let record = append.record;
        let invalid = || StoreError::Invalid(format!("`{}` is not a run", record.id.id));
        let (node, run) = parse(&record.id).ok_or_else(invalid)?;
        let mut transaction = transaction;
        if let Some(chunk) = append.events {
            let key = keys::report_events(&node, run, chunk.first);
            transaction = transaction.put(key, chunk.content);
        }
        if append.is_new {
            let known = self.own_head(&node, run).await.map_err(failed)?;
            if let Some(known) = known.filter(|known| known.finished.is_some()) {
                return Ok((Transaction::new(), Appended::Closed(known.record())));
            }
            let indexed = self.index(transaction, (&node, run), record.at, &append.also);
            transaction = indexed.await.map_err(failed)?;
        }
        Ok((transaction, Appended::Stored { at: record.at }))
    }

    async fn import(
        &self,
        record: HistoryRecord,
        also: Vec<String>,
        events: Vec<EventChunk>,
    ) -> Result<(), HistoryError> {
        let imported = self.store_imported(&record, &also, &events).await;
        imported.map_err(failed)
    }

    async fn close(&self, record: HistoryRecord) -> Result<(), HistoryError> {
        match parse(&record.id) {
            Some((node, run)) => self.compact(&node, run).await.map_err(failed),
            None => Ok(()),
        }
    }

    async fn record(&self, id: &RecordId) -> Result<Option<HistoryRecord>, HistoryError> {
        let Some((node, run)) = parse(id) else {
            return Ok(None);
        };
        let head = self.own_head(&node, run).await.map_err(failed)?;
        Ok(head.map(|head| head.record()))
    }

    async fn aliases(&self, record: &HistoryRecord) -> Result<Vec<String>, HistoryError> {
        let Some((node, run)) = parse(&record.id) else {
            return Ok(Vec::new());
        };
        let head = self.head(&node, run).await.map_err(failed)?;
        let ids = head.map(|head| super::super::super::aliases_of(&head.document));
        Ok(ids.unwrap_or_default())
    }

    async fn events(
        &self,
        id: &RecordId,
        _: Timestamp,
        from: u64,
    ) -> Result<Vec<EventChunk>, HistoryError> {
        match parse(id) {
            Some((node, run)) => self.chunks(&node, run, from).await.map_err(failed),
            None => Ok(Vec::new()),
        }
    }

    async fn list(&self, filter: &HistoryFilter) -> Result<HistoryPage, HistoryError> {
        let page = match &filter.owner {
            None => self.list_by_time(filter).await,
            Some(owner) => match NodeName::new(owner) {
                Ok(node) => self.list_of_owner(&node, filter).await,
                Err(_) => Ok(HistoryPage::default()),
            },
        };
        page.map_err(failed)
    }

    async fn find(&self, prefix: &str, limit: usize) -> Result<Vec<FoundRecord>, HistoryError> {
        let range = Range {
            limit,
            ..Range::prefix(format!("{}{prefix}", keys::REPORT_IDS))
        };
        let page = self.store.range(range).await?;
        let mut found = Vec::new();
        for entry in &page.items {
            let place: ReportPlace = document::decode(entry).map_err(failed)?;
            let alias = entry.key.trim_start_matches(keys::REPORT_IDS).to_owned();
            let run = place.run.to_string();
            found.push(FoundRecord {
                alias: alias.clone(),
                record: RecordId::new(place.node.as_str(), run),
            });
            found.extend(place.also_claimed_by.iter().map(|node| FoundRecord {
                alias: alias.clone(),
                record: RecordId::new(node.as_str(), alias.clone()),
            }));
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn remove(&self, id: &RecordId) -> Result<(), HistoryError> {
        match parse(id) {
            Some((node, run)) => self.delete(&node, run, false).await.map_err(failed),
            None => Ok(()),
        }
    }

    async fn remove_owner(&self, owner: &str) -> Result<(), HistoryError> {
        let Ok(node) = NodeName::new(owner) else {
            return Ok(());
        };
        for key in document::keys_under(&*self.store, &keys::reports_of(&node)).await? {
            if let Some((node, run)) = keys::parse_report(&key) {
                self.delete(&node, run, true).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    async fn drop_before(
        &self,
        part: HistoryPart,
        before: Timestamp,
    ) -> Result<usize, HistoryError> {
        // Events are deleted with their report: finding them without it would read all heads.
        if part == HistoryPart::Events {
            return Ok(0);
        }
        self.delete_before(before).await.map_err(failed)
    }

    async fn events_since(&self) -> Result<Option<Timestamp>, HistoryError> {
        Ok(None)
    }

    async fn check(&self, _: Timestamp) -> Result<(), HistoryError> {
        Ok(())
    }
}
