//! History in the state store, for small fleets.
//!
//! A report is a head and its events: one key per batch while the run is in progress, one value or
//! one blob once it is finished. Events are written in the transaction that stores the head, so an
//! append costs no write of its own.
//!
//! The head is the one that the report service keeps. A report belongs to this history if it has an
//! entry in the order of time; the head alone does not tell.

mod backend;

use bunraku_model::{ContentId, NodeName, NodeRunId};
use bunraku_store::blobs::{Pins, SharedBlobs};
use bunraku_store::history::{
    EventChunk, HistoryError, HistoryFilter, HistoryPage, HistoryPosition, HistoryRecord, RecordId,
};
use bunraku_store::{Range, SharedStore, Swap, Transaction, compare_and_swap, settle};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::event_code;
use super::super::head::ReportHead;
use crate::document::{self, Versioned};
use crate::{ServiceError, keys};

/// The most bytes of compressed events that become a value in the store. A blob of this size costs
/// seven writes and four more keys.
const LARGEST_PACKED: usize = 16 << 10;
/// The most claims that one index entry remembers.
const MOST_CLAIMS: usize = 8;
/// The number of entries read at a time.
const PAGE: usize = 200;
/// The number of heads read concurrently.
const AT_ONCE: usize = 16;
/// Chunks per transaction of an import, so that together they stay within the store's limit.
const IMPORTED_AT_ONCE: usize = 1;

/// The location of a run's report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) struct ReportPlace {
    pub(in super::super) node: NodeName,
    pub(in super::super) run: NodeRunId,
    /// Other nodes that report a run with this id. Ids are chosen by those who request runs, and
    /// a node could use the id of another node's run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in super::super) also_claimed_by: Vec<NodeName>,
}

/// The history in the state store.
#[derive(Clone)]
pub(in super::super) struct StoreHistory {
    store: SharedStore,
    blobs: SharedBlobs,
}

/// Names that never were written are in no report.
fn parse(id: &RecordId) -> Option<(NodeName, NodeRunId)> {
    Some((NodeName::new(&id.owner).ok()?, id.id.parse().ok()?))
}

fn failed(error: ServiceError) -> HistoryError {
    match error {
        ServiceError::Store(error) => HistoryError::Store(error),
        ServiceError::History(error) => error,
        error => HistoryError::Failed {
            backend: "the state store".to_owned(),
            source: Box::new(error),
        },
    }
}

impl StoreHistory {
    pub(in super::super) fn new(store: SharedStore, blobs: SharedBlobs) -> Self {
        Self { store, blobs }
    }

    async fn head(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<Option<Versioned<ReportHead>>, ServiceError> {
        document::read(&*self.store, &keys::report(node, run)).await
    }

    /// Returns the head of a report that belongs to this history.
    async fn own_head(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<Option<ReportHead>, ServiceError> {
        let Some(known) = self.head(node, run).await? else {
            return Ok(None);
        };
        let is_own = self.holds(&known.document).await?;
        Ok(is_own.then_some(known.document))
    }

    /// Returns whether a report has something here beside its head.
    pub(in super::super) async fn holds(&self, head: &ReportHead) -> Result<bool, ServiceError> {
        let time = keys::report_time(head.first_received, head.run);
        Ok(self.store.get(&time).await?.is_some())
    }

    /// Adds every index entry that leads to a new report. An entry that leads to a report of
    /// another node stays as it is, and notes that this node claims it too.
    async fn index(
        &self,
        mut transaction: Transaction,
        (node, run): (&NodeName, NodeRunId),
        at: Timestamp,
        also: &[String],
    ) -> Result<Transaction, ServiceError> {
        let place = ReportPlace {
            node: node.clone(),
            run,
            also_claimed_by: Vec::new(),
        };
        let mut ids: Vec<NodeRunId> = also.iter().filter_map(|id| id.parse().ok()).collect();
        ids.push(run);
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let key = keys::report_id(id);
            let known = document::read::<ReportPlace>(&*self.store, &key).await?;
            let entry = known.as_ref().map(|known| &known.entry);
            transaction = transaction.when_unchanged(&key, entry);
            transaction = match known.map(|known| known.document) {
                Some(mut other) if other.node != *node => {
                    let claims = &mut other.also_claimed_by;
                    if !claims.contains(node) && claims.len() < MOST_CLAIMS {
                        claims.push(node.clone());
                    }
                    tracing::warn!(%node, run = %id, of = %other.node, "a node reports a run under the id of another node's run");
                    transaction.put(key, document::encode(&other))
                }
                _ => transaction.put(key, document::encode(&place)),
            };
        }
        Ok(transaction.put(keys::report_time(at, run), document::encode(&place)))
    }

    /// Moves the events of a finished report into one value or one blob. Does nothing for a run
    /// that is in progress or already compacted.
    pub(in super::super) async fn compact(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<(), ServiceError> {
        let held = Pins::default();
        let pins = &held;
        let outcome = compare_and_swap(&*self.store, |_| async move {
            let Some(known) = self.head(node, run).await? else {
                let leftover = Transaction::new().delete(keys::open_report(node, run));
                return Ok(Swap::Write(leftover, ()));
            };
            let head = &known.document;
            if head.finished.is_none() || head.is_settled() || head.elsewhere {
                return Ok(Swap::Done(()));
            }
            let chunks = self.batches(node, run, 0, Some(head.next)).await?;
            let events = event_code::assemble(&chunks, 0, head.next)?;
            // The first events of a report that is moved here are still elsewhere.
            if events.last().map_or(0, event_code::end_of) < head.next {
                return Ok(Swap::Done(()));
            }
            let zipped = event_code::encode_report(&events);
            if zipped.len() <= LARGEST_PACKED {
                return Ok(Swap::Write(settled_small(&known, zipped), ()));
            }
            let written =
                (self.blobs.put(&mut zipped.as_slice(), None).await).map_err(blob_error)?;
            pins.add(written.pin);
            let transaction = self.point_to(&known, written.info.id).await?;
            Ok(Swap::Write(transaction, ()))
        })
        .await;
        held.release().await.map_err(blob_error)?;
        outcome
    }

    async fn point_to(
        &self,
        known: &Versioned<ReportHead>,
        content: ContentId,
    ) -> Result<Transaction, ServiceError> {
        let (node, run) = (&known.document.node, known.document.run);
        let head = ReportHead {
            content: Some(content),
            ..known.document.clone()
        };
        self.blobs
            .reference_in(settled(known, &head), content, &referrer(node, run))
            .await
            .map_err(blob_error)
    }

    /// Deletes a report with its head, or leaves the head as one whose events are elsewhere.
    pub(in super::super) async fn delete(
        &self,
        node: &NodeName,
        run: NodeRunId,
        with_head: bool,
    ) -> Result<(), ServiceError> {
        compare_and_swap(&*self.store, |_| async {
            let Some(known) = self.head(node, run).await? else {
                return Ok(Swap::Done(()));
            };
            let head = &known.document;
            let key = keys::report(node, run);
            let is_open = head.finished.is_none() && !with_head;
            let mut transaction = Transaction::new()
                .when_unchanged(&key, Some(&known.entry))
                .delete(keys::report_time(head.first_received, run))
                .delete(keys::report_packed(node, run))
                .delete_prefix(keys::report_events_of(node, run));
            transaction = if with_head {
                transaction.delete(key)
            } else {
                transaction.put(key, document::encode(&head.clone().moved_elsewhere()))
            };
            if !is_open {
                transaction = transaction.delete(keys::open_report(node, run));
            }
            for id in super::super::indexed_ids(head) {
                let key = keys::report_id(id);
                let place = document::read::<ReportPlace>(&*self.store, &key).await?;
                // An entry of another node stays, whatever this report claims.
                if let Some(place) = place
                    && place.document.node == *node
                {
                    transaction = transaction
                        .when_unchanged(&key, Some(&place.entry))
                        .delete(key);
                }
            }
            if let Some(content) = head.content {
                transaction = self
                    .blobs
                    .unreference_in(transaction, content, &referrer(node, run))
                    .map_err(blob_error)?;
            }
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }

    /// Returns the batches that are not compacted yet, from the one that contains `from`. `next` is
    /// the number of the next event, if all events are here.
    async fn batches(
        &self,
        node: &NodeName,
        run: NodeRunId,
        from: u64,
        next: Option<u64>,
    ) -> Result<Vec<EventChunk>, ServiceError> {
        let prefix = keys::report_events_of(node, run);
        let mut range = Range::prefix(&prefix);
        if from > 0 {
            let keys = document::keys_under(&*self.store, &prefix).await?;
            let wanted = keys::report_events(node, run, from);
            let holding = keys.partition_point(|key| *key <= wanted).saturating_sub(1);
            range.after = holding.checked_sub(1).map(|before| keys[before].clone());
        }
        let mut chunks = Vec::new();
        loop {
            let page = self.store.range(range.clone()).await?;
            for entry in &page.items {
                let first = keys::parse_report_events(&entry.key).map_or(0, |(_, _, it)| it);
                chunks.push((first, entry.value.clone()));
                range.after = Some(entry.key.clone());
            }
            if !page.more {
                break;
            }
        }
        // A batch ends where the next one begins, and the last one where the report ends so far.
        let ends: Vec<u64> = chunks.iter().skip(1).map(|(first, _)| *first).collect();
        let last = match (chunks.last(), next) {
            (None, _) => 0,
            (Some(_), Some(next)) => next,
            (Some((_, content)), None) => event_code::last_end(content)?,
        };
        let ends = ends.into_iter().chain([last]);
        let chunks = chunks.into_iter().zip(ends);
        Ok(chunks
            .map(|((first, content), end)| EventChunk {
                first,
                end,
                content,
            })
            .collect())
    }

    async fn chunks(
        &self,
        node: &NodeName,
        run: NodeRunId,
        from: u64,
    ) -> Result<Vec<EventChunk>, ServiceError> {
        loop {
            let Some(known) = self.head(node, run).await? else {
                return Ok(Vec::new());
            };
            let head = known.document;
            let whole = |content| EventChunk {
                first: 0,
                end: head.next,
                content,
            };
            let chunks = match (head.content, head.packed) {
                (Some(content), _) => {
                    let zipped = self.blobs.read(content).await.map_err(blob_error)?;
                    vec![whole(zipped.to_vec().into())]
                }
                (None, true) => {
                    let entry = self.store.get(&keys::report_packed(node, run)).await?;
                    entry.map(|entry| whole(entry.value)).into_iter().collect()
                }
                (None, false) => {
                    // The later events of a report that is moved are elsewhere.
                    let next = (!head.elsewhere).then_some(head.next);
                    self.batches(node, run, from, next).await?
                }
            };
            if !chunks.is_empty() || head.elsewhere || head.next <= from {
                return Ok(bunraku_store::history::cover(chunks, from));
            }
            // Compacted or deleted between reading the head and reading the events.
        }
    }

    /// Returns the next records in the order of time.
    async fn page_of_times(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<(Vec<HistoryRecord>, Option<String>, bool), ServiceError> {
        let range = Range {
            after,
            limit,
            ..Range::prefix(keys::REPORT_TIMES)
        };
        let page = self.store.range(range).await?;
        let places: Vec<ReportPlace> = (page.items.iter())
            .map(document::decode)
            .collect::<Result<_, _>>()?;
        let heads: Vec<_> = futures::stream::iter(places)
            .map(async |place| self.head(&place.node, place.run).await)
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let heads = heads.into_iter().flatten();
        let records = heads.map(|head| head.document.record()).collect();
        let last = page.items.last().map(|entry| entry.key.clone());
        Ok((records, last, page.more))
    }

    async fn list_by_time(&self, filter: &HistoryFilter) -> Result<HistoryPage, ServiceError> {
        let limit = filter.limit.max(1);
        let mut after = filter.after.as_ref().map(position_key);
        let mut records: Vec<HistoryRecord> = Vec::new();
        loop {
            let (found, last, more) = self.page_of_times(after, limit.min(PAGE)).await?;
            let is_past =
                |record: &HistoryRecord| filter.since.is_some_and(|since| record.at < since);
            let is_over = !more || found.last().is_some_and(is_past);
            records.extend(found.into_iter().filter(|it| matches_filter(filter, it)));
            if records.len() > limit || is_over {
                let more = records.len() > limit || !is_over;
                records.truncate(limit);
                return Ok(HistoryPage { records, more });
            }
            after = last;
        }
    }

    async fn list_of_owner(
        &self,
        node: &NodeName,
        filter: &HistoryFilter,
    ) -> Result<HistoryPage, ServiceError> {
        let mut records = Vec::new();
        for entry in document::read_all(&*self.store, &keys::reports_of(node)).await? {
            let head: ReportHead = document::decode(&entry)?;
            if !head.elsewhere {
                records.push(head.record());
            }
        }
        records.retain(|record| matches_filter(filter, record));
        records.sort_by_key(|it| std::cmp::Reverse((it.at, it.id.id.clone())));
        let limit = filter.limit.max(1);
        let more = records.len() > limit;
        records.truncate(limit);
        Ok(HistoryPage { records, more })
    }

    async fn delete_before(&self, before: Timestamp) -> Result<usize, ServiceError> {
        let mut deleted = 0;
        let Ok(last) = before.checked_sub(jiff::SignedDuration::from_micros(1)) else {
            return Ok(0);
        };
        loop {
            let range = Range {
                after: Some(keys::report_times_from(last)),
                limit: PAGE,
                ..Range::prefix(keys::REPORT_TIMES)
            };
            let page = self.store.range(range).await?;
            for entry in &page.items {
                let place: ReportPlace = document::decode(entry)?;
                self.delete(&place.node, place.run, true).await?;
                // Delete pointers to deleted reports too.
                let pointer = Transaction::new().delete(entry.key.clone());
                settle(&*self.store, pointer).await?;
                deleted += 1;
            }
            if !page.more {
                return Ok(deleted);
            }
        }
    }

    async fn store_imported(
        &self,
        record: &HistoryRecord,
        also: &[String],
        events: &[EventChunk],
    ) -> Result<(), ServiceError> {
        let Some((node, run)) = parse(&record.id) else {
            return Ok(());
        };
        let given: ReportHead = serde_json::from_slice(&record.head).map_err(|source| {
            let key = keys::report(&node, run);
            ServiceError::Document { key, source }
        })?;
        for some in events.chunks(IMPORTED_AT_ONCE) {
            let transaction = some.iter().fold(Transaction::new(), |transaction, chunk| {
                let key = keys::report_events(&node, run, chunk.first);
                transaction.put(key, chunk.content.clone())
            });
            settle(&*self.store, transaction).await?;
        }
        let (node, given) = (&node, &given);
        compare_and_swap(&*self.store, |_| async move {
            let known = self.head(node, run).await?;
            let is_done = match &known {
                Some(known) if known.document.is_settled() => self.holds(&known.document).await?,
                _ => false,
            };
            if is_done {
                return Ok::<_, ServiceError>(Swap::Done(()));
            }
            let head = match &known {
                Some(known) if known.document.version() >= given.version() => &known.document,
                _ => given,
            };
            let head = ReportHead {
                elsewhere: false,
                small: false,
                ..head.clone()
            };
            let key = keys::report(node, run);
            let transaction = Transaction::new()
                .when_unchanged(&key, known.as_ref().map(|known| &known.entry))
                .put(key, document::encode(&head))
                .put(keys::open_report(node, run), "");
            let at = head.first_received;
            let transaction = self.index(transaction, (node, run), at, also).await?;
            Ok(Swap::Write(transaction, ()))
        })
        .await?;
        self.compact(node, run).await
    }
}

/// The place of a record in the order of time.
fn position_key(position: &HistoryPosition) -> String {
    format!("{}/{}", keys::report_times_from(position.at), position.id)
}

fn matches_filter(filter: &HistoryFilter, record: &HistoryRecord) -> bool {
    let is_after = |after: &HistoryPosition| (record.at, &record.id.id) < (after.at, &after.id);
    filter.status.as_ref().is_none_or(|status| *status == record.status)
        && (!filter.problems || record.is_problem)
        && filter.since.is_none_or(|since| record.at >= since)
        // The order of time has its own position.
        && (filter.owner.is_none() || filter.after.as_ref().is_none_or(is_after))
}

/// Replaces the head of a finished report, and removes the events in their batches.
fn settled(known: &Versioned<ReportHead>, head: &ReportHead) -> Transaction {
    let key = keys::report(&head.node, head.run);
    let head = ReportHead {
        newest_batch: None,
        ..head.clone()
    };
    Transaction::new()
        .when_unchanged(&key, Some(&known.entry))
        .put(key, document::encode(&head))
        .delete(keys::open_report(&head.node, head.run))
        .delete_prefix(keys::report_events_of(&head.node, head.run))
}

/// Stores the events of a small report as one value.
fn settled_small(known: &Versioned<ReportHead>, zipped: Vec<u8>) -> Transaction {
    let head = ReportHead {
        packed: true,
        ..known.document.clone()
    };
    let key = keys::report_packed(&head.node, head.run);
    settled(known, &head).put(key, zipped)
}

fn referrer(node: &NodeName, run: NodeRunId) -> String {
    format!("report/{node}/{run}")
}

fn blob_error(error: bunraku_store::blobs::BlobError) -> ServiceError {
    ServiceError::content("cannot use a report's events", error)
}

#[cfg(test)]
mod tests;
