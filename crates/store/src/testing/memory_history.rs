//! A history in memory, shared by the servers of a simulation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::Transaction;
use crate::history::{
    Appended, EventChunk, FoundRecord, History, HistoryAppend, HistoryError, HistoryFilter,
    HistoryPage, HistoryPart, HistoryPosition, HistoryRecord, RecordId, cover, in_microseconds,
};

/// The history. This is a handle: clones are the same history.
#[derive(Clone, Default)]
pub struct MemoryHistory(Arc<Mutex<MemoryTables>>);

#[derive(Default)]
struct MemoryTables {
    records: BTreeMap<RecordId, HistoryRecord>,
    aliases: BTreeMap<String, Vec<RecordId>>,
    events: BTreeMap<RecordId, BTreeMap<u64, EventChunk>>,
    records_floor: Option<Timestamp>,
    events_floor: Option<Timestamp>,
}

impl MemoryHistory {
    pub fn new() -> Self {
        Self::default()
    }

    fn tables(&self) -> MutexGuard<'_, MemoryTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryTables {
    fn put(&mut self, mut record: HistoryRecord, also: &[String], events: Vec<EventChunk>) {
        record.at = in_microseconds(record.at);
        let id = record.id.clone();
        if self.records_floor.is_some_and(|floor| record.at < floor) {
            return;
        }
        if self.events_floor.is_none_or(|floor| record.at >= floor) {
            let chunks = self.events.entry(id.clone()).or_default();
            for chunk in events {
                let known = chunks.get(&chunk.first);
                if known.is_none_or(|known| known.end < chunk.end) {
                    chunks.insert(chunk.first, chunk);
                }
            }
        }
        for alias in also.iter().chain([&id.id]) {
            let records = self.aliases.entry(alias.clone()).or_default();
            if !records.contains(&id) {
                records.push(id.clone());
            }
        }
        let known = self.records.get(&id);
        if known.is_none_or(|known| known.version <= record.version) {
            record.is_closed |= known.is_some_and(|known| known.is_closed);
            self.records.insert(id, record);
        }
    }

    fn remove(&mut self, is_removed: impl Fn(&RecordId) -> bool) {
        self.records.retain(|id, _| !is_removed(id));
        self.events.retain(|id, _| !is_removed(id));
        for records in self.aliases.values_mut() {
            records.retain(|id| !is_removed(id));
        }
    }
}

fn is_listed(filter: &HistoryFilter, record: &HistoryRecord) -> bool {
    let place = HistoryPosition::of(record);
    let is_after = |after: &HistoryPosition| (place.at, &place.id) < (after.at, &after.id);
    filter
        .owner
        .as_ref()
        .is_none_or(|owner| *owner == record.id.owner)
        && filter
            .status
            .as_ref()
            .is_none_or(|status| *status == record.status)
        && (!filter.problems || record.is_problem)
        && filter.since.is_none_or(|since| record.at >= since)
        && filter.after.as_ref().is_none_or(is_after)
}

#[async_trait]
impl History for MemoryHistory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn append(
        &self,
        transaction: Transaction,
        append: HistoryAppend,
    ) -> Result<(Transaction, Appended), HistoryError> {
        let mut tables = self.tables();
        let mut record = append.record;
        if append.is_new
            && let Some(known) = tables.records.get(&record.id)
        {
            if known.is_closed {
                return Ok((transaction, Appended::Closed(known.clone())));
            }
            record.at = known.at;
        }
        let at = in_microseconds(record.at);
        tables.put(record, &append.also, append.events.into_iter().collect());
        Ok((transaction, Appended::Stored { at }))
    }

    async fn import(
        &self,
        mut record: HistoryRecord,
        also: Vec<String>,
        events: Vec<EventChunk>,
    ) -> Result<(), HistoryError> {
        let mut tables = self.tables();
        if let Some(known) = tables.records.get(&record.id) {
            record.at = known.at;
        }
        tables.put(record, &also, events);
        Ok(())
    }

    async fn close(&self, record: HistoryRecord) -> Result<(), HistoryError> {
        let record = HistoryRecord {
            is_closed: true,
            ..record
        };
        self.import(record, Vec::new(), Vec::new()).await
    }

    async fn record(&self, id: &RecordId) -> Result<Option<HistoryRecord>, HistoryError> {
        Ok(self.tables().records.get(id).cloned())
    }

    async fn aliases(&self, record: &HistoryRecord) -> Result<Vec<String>, HistoryError> {
        let tables = self.tables();
        let found = tables
            .aliases
            .iter()
            .filter(|(alias, records)| **alias != record.id.id && records.contains(&record.id));
        Ok(found.map(|(alias, _)| alias.clone()).collect())
    }

    async fn events(
        &self,
        id: &RecordId,
        _: Timestamp,
        from: u64,
    ) -> Result<Vec<EventChunk>, HistoryError> {
        let tables = self.tables();
        let chunks = tables.events.get(id).into_iter().flat_map(BTreeMap::values);
        Ok(cover(chunks.cloned().collect(), from))
    }

    async fn list(&self, filter: &HistoryFilter) -> Result<HistoryPage, HistoryError> {
        let tables = self.tables();
        let listed = tables.records.values();
        let mut records: Vec<HistoryRecord> = listed
            .filter(|record| is_listed(filter, record))
            .cloned()
            .collect();
        records.sort_by_key(|record| std::cmp::Reverse((record.at, record.id.id.clone())));
        let limit = filter.limit.max(1);
        let more = records.len() > limit;
        records.truncate(limit);
        Ok(HistoryPage { records, more })
    }

    async fn find(&self, prefix: &str, limit: usize) -> Result<Vec<FoundRecord>, HistoryError> {
        let tables = self.tables();
        let aliases = tables.aliases.range(prefix.to_owned()..);
        let aliases = aliases.take_while(|(alias, _)| alias.starts_with(prefix));
        let found = aliases.flat_map(|(alias, records)| {
            records.iter().map(|record| FoundRecord {
                alias: alias.clone(),
                record: record.clone(),
            })
        });
        let mut found: Vec<FoundRecord> = found.collect();
        found.sort();
        found.truncate(limit);
        Ok(found)
    }

    async fn remove(&self, id: &RecordId) -> Result<(), HistoryError> {
        self.tables().remove(|other| other == id);
        Ok(())
    }

    async fn remove_owner(&self, owner: &str) -> Result<(), HistoryError> {
        self.tables().remove(|other| other.owner == owner);
        Ok(())
    }

    async fn drop_before(
        &self,
        part: HistoryPart,
        before: Timestamp,
    ) -> Result<usize, HistoryError> {
        let mut tables = self.tables();
        let old = tables.records.values().filter(|record| record.at < before);
        let old: Vec<RecordId> = old.map(|record| record.id.clone()).collect();
        match part {
            HistoryPart::Events => {
                tables.events_floor = tables.events_floor.max(Some(before));
                tables.events.retain(|id, _| !old.contains(id));
            }
            HistoryPart::Records => {
                tables.records_floor = tables.records_floor.max(Some(before));
                tables.remove(|id| old.contains(id));
            }
        }
        Ok(old.len())
    }

    async fn events_since(&self) -> Result<Option<Timestamp>, HistoryError> {
        Ok(self.tables().events_floor)
    }

    async fn check(&self, _: Timestamp) -> Result<(), HistoryError> {
        Ok(())
    }
}
