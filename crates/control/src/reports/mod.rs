//! The report service: the actions of nodes, event by event.
//!
//! A report is a head (small, one key) and its events, which are in history (`history`). A batch is
//! first appended there, and then acknowledged by one transaction in the state store that compares
//! and replaces the head. A server that dies in between loses nothing: the agent sends the batch
//! again, and history ignores what it has. Of two overlapping batches one wins, and
//! the other is dropped or continues after it.
//!
//! The state store keeps the heads that are needed now: of unfinished reports, and of the newest
//! report of each node. History has a copy of every head, for lists.
//!
//! A run of the schedule that ends like the one before it, without a change, gets no report: the
//! report before it counts it (`repeats`).
//!
//! Rules: an event has a number and is stored once, and nothing is stored after a
//! gap. Order and age use the server's clock, not the node's.
//!
//! Absent: the purpose of a run, and when it starts (`commands`, and the agent).

mod budget;
mod event_code;
mod follow;
mod head;
mod history;
mod last_run;
mod moving;
mod outputs;
mod read;
mod repeats;
mod retention;
mod subscribe;

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{NodeName, NodeRunId};
use bunraku_store::blobs::SharedBlobs;
use bunraku_store::history::{Appended, EventChunk, HistoryAppend, HistoryRecord};
use bunraku_store::{SharedStore, Swap, Transaction, compare_and_swap};
use bunraku_wire::api::{NumberedEvent, ReportBatch, ReportReceipt, RunEnding};

pub use follow::FollowedEvents;
pub use head::ReportHead;
use history::{Histories, KnownHistory};
pub use history::{HistoryBackends, HistoryPlace, StoredHistoryPlace};
pub(crate) use last_run::StoredLastRun;
pub use moving::HistoryMove;
pub use read::ReportFilter;
pub use subscribe::{NodeRunNews, ReportSubscription};

use crate::clock::Clock;
use crate::document::{self, Versioned};
use crate::node_events::{NoRecorder, NodeEventRecorder, RunEvents};
use crate::{ServiceError, keys, node_condition};
use head::{BatchArrival, BatchEffect};
pub use outputs::NodeOutput;

/// The most bytes of events of a finished report that stay in their batches. Moving them would cost
/// a write.
const LARGEST_SMALL: u64 = 8 << 10;
/// The delay before a retry after the store or history was unavailable.
const RETRY: Duration = Duration::from_millis(500);
/// The number of folded requests whose ids lead to the report of the run that served them.
const ALSO_INDEXED: usize = 64;

/// The limits on stored reports.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// The most reports of one node in the state store. Beyond this, the oldest are deleted.
    pub kept_per_node: usize,
    /// The age at which reports in the state store are deleted.
    pub kept_for: Duration,
    /// The age at which events are deleted in a history of its own.
    pub events_kept_for: Duration,
    /// The age at which reports are deleted in a history of its own.
    pub heads_kept_for: Duration,
    /// The bytes of all reports of one node in the state store. Beyond this, the oldest are
    /// deleted.
    pub bytes_per_node: u64,
    /// The bytes of all unfinished reports of one node. Further events are refused.
    pub open_bytes_per_node: u64,
    /// The most unfinished reports of one node.
    pub open_per_node: usize,
    /// The bytes of one report. Further events are only counted.
    pub bytes_per_report: u64,
    /// An unfinished report without news for this long makes room for others.
    pub abandoned_after: Duration,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            kept_per_node: 100,
            kept_for: Duration::from_secs(30 * 24 * 3_600),
            events_kept_for: Duration::from_secs(14 * 24 * 3_600),
            heads_kept_for: Duration::from_secs(90 * 24 * 3_600),
            bytes_per_node: 256 << 20,
            open_bytes_per_node: 64 << 20,
            open_per_node: 50,
            bytes_per_report: 32 << 20,
            abandoned_after: Duration::from_secs(3_600),
        }
    }
}

/// The handle on the report service.
#[derive(Clone)]
pub struct Reports {
    store: SharedStore,
    histories: Histories,
    clock: Clock,
    options: ReportOptions,
    /// Records the events of runs that reactors ask for.
    recorder: Arc<dyn NodeEventRecorder>,
}

/// The outcome of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedBatch {
    pub receipt: ReportReceipt,
    /// The number of new events.
    pub stored: usize,
    /// The ending of the run, if the batch contained it.
    pub ended: Option<RunEnding>,
    /// The run has ended and has a report of its own: call [`Reports::settle`].
    pub needs_settling: bool,
}

impl AcceptedBatch {
    fn nothing_new(receipt: ReportReceipt) -> Self {
        Self {
            receipt,
            stored: 0,
            ended: None,
            needs_settling: false,
        }
    }
}

impl Reports {
    pub fn new(
        store: SharedStore,
        blobs: SharedBlobs,
        clock: Clock,
        options: ReportOptions,
    ) -> Self {
        let histories = Histories::new(store.clone(), blobs, HistoryBackends::default());
        Self {
            store,
            histories,
            clock,
            options,
            recorder: Arc::new(NoRecorder),
        }
    }

    /// Sets the recorder of the events of runs that reactors ask for.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Arc<dyn NodeEventRecorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// Sets the backends of history. Without any, history is in the state store.
    #[must_use]
    pub fn with_history(mut self, blobs: SharedBlobs, backends: HistoryBackends) -> Self {
        self.histories = Histories::new(self.store.clone(), blobs, backends);
        self
    }

    /// Accepts events of a run. When this returns, they are durable; the same
    /// events again change nothing.
    pub async fn take(
        &self,
        node: &NodeName,
        run: NodeRunId,
        batch: ReportBatch,
    ) -> Result<AcceptedBatch, ServiceError> {
        let batch = &batch;
        compare_and_swap(&*self.store, |refused| async move {
            node_condition::check_refusal(&refused, node)?;
            let history = if refused.is_empty() {
                self.histories.current().await?
            } else {
                self.histories.refresh().await?
            };
            let known = self.head(node, run).await?;
            let arrival = BatchArrival {
                node,
                run,
                now: self.clock.now(),
            };
            if known.is_none() {
                if let Some(repeated) = self.repeat(batch, &arrival).await? {
                    return Ok(repeated);
                }
                if let Some(receipt) = self.known_before(&history, &arrival, batch).await? {
                    return Ok(Swap::Done(AcceptedBatch::nothing_new(receipt)));
                }
            }
            let before = known.as_ref().map(|known| known.document.clone());
            let written = before.as_ref().map_or(0, |head| head.bytes);
            let batch = self.within_report(batch.clone(), written);
            let (mut head, events) = match ReportHead::accept(before, batch, &arrival)? {
                BatchEffect::Nothing(receipt) => {
                    return Ok(Swap::Done(AcceptedBatch::nothing_new(receipt)));
                }
                BatchEffect::Store { head, events } => (head, events),
            };
            head.bytes += document::encode(&events).len() as u64;
            let in_store = history.is_in_store();
            head.small = in_store && head.finished.is_some() && head.bytes <= LARGEST_SMALL;
            head.elsewhere = !in_store;
            self.check_budget(&head, written, known.is_none()).await?;
            // Before the end of the run becomes visible, because others wait for that.
            let now = arrival.now;
            outputs::note(&self.store, node, run, &events, now).await?;
            let transaction = node_condition::when_exists(node);
            let append = append_of(&head, &events, known.is_none());
            let (transaction, appended) = history.active()?.append(transaction, append).await?;
            match appended {
                Appended::Stored { at } if known.is_none() => head.first_received = at,
                Appended::Stored { .. } => {}
                Appended::Closed(record) => {
                    let head: ReportHead = decode_record(&record)?;
                    return Ok(Swap::Done(AcceptedBatch::nothing_new(head.receipt())));
                }
            }
            let taken = AcceptedBatch {
                receipt: head.receipt(),
                stored: events.len(),
                ended: head.finished.as_ref().map(|finished| finished.ending),
                needs_settling: head.finished.is_some(),
            };
            let transaction = history.when_unchanged(transaction);
            let transaction = self.acknowledge(transaction, known.as_ref(), &head, &events);
            Ok(Swap::Write(transaction.await?, taken))
        })
        .await
    }

    /// Returns the receipt of a report that was acknowledged before, and whose head the state
    /// store no longer has. A message may be late by any time.
    async fn known_before(
        &self,
        history: &KnownHistory,
        arrival: &BatchArrival<'_>,
        batch: &ReportBatch,
    ) -> Result<Option<ReportReceipt>, ServiceError> {
        // The state store has every head of its own, and the first batch asks the active backend
        // when it is appended.
        if history.from.is_none() && (history.is_in_store() || batch.first == 0) {
            return Ok(None);
        }
        let record = self.histories.record(arrival.node, arrival.run).await?;
        match record.filter(|record| record.is_closed) {
            Some(record) => Ok(Some(decode_record(&record)?.receipt())),
            None => Ok(None),
        }
    }

    /// Adds what makes a batch visible, and acknowledges it.
    async fn acknowledge(
        &self,
        transaction: Transaction,
        known: Option<&Versioned<ReportHead>>,
        head: &ReportHead,
        events: &[NumberedEvent],
    ) -> Result<Transaction, ServiceError> {
        let (node, run) = (&head.node, head.run);
        let key = keys::report(node, run);
        let mut transaction = transaction
            .when_unchanged(&key, known.map(|known| &known.entry))
            .put(key, document::encode(head));
        let open = keys::open_report(node, run);
        let is_open = head.finished.is_none() || !(head.small || head.elsewhere);
        transaction = match (known.is_some(), is_open) {
            (false, true) => transaction.put(open, ""),
            (true, false) => transaction.delete(open),
            (false, false) | (true, true) => transaction,
        };
        if head.finished.is_some() {
            transaction = last_run::note(&*self.store, transaction, head).await?;
        }
        let new = RunEvents {
            node: &head.node,
            run: head.run,
            started: &head.started,
            events,
        };
        Ok(self.recorder.report_events(transaction, &new))
    }

    async fn head(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<Option<Versioned<ReportHead>>, ServiceError> {
        document::read(&*self.store, &keys::report(node, run)).await
    }
}

/// The report's own id, and those of requests that its run also served.
fn indexed_ids(head: &ReportHead) -> impl Iterator<Item = NodeRunId> + '_ {
    let mut ids: Vec<NodeRunId> = head
        .started
        .also
        .iter()
        .copied()
        .take(ALSO_INDEXED)
        .collect();
    ids.push(head.run);
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter()
}

/// The ids of requests that the report's run also served.
fn aliases_of(head: &ReportHead) -> Vec<String> {
    let ids = indexed_ids(head).filter(|id| *id != head.run);
    ids.map(|id| id.to_string()).collect()
}

/// A batch as history stores it.
fn append_of(head: &ReportHead, events: &[NumberedEvent], is_new: bool) -> HistoryAppend {
    HistoryAppend {
        record: head.record(),
        also: if is_new { aliases_of(head) } else { Vec::new() },
        is_new,
        events: events.first().map(|first| EventChunk {
            first: first.number,
            end: head.next,
            content: event_code::encode(events),
        }),
    }
}

/// Reads the head in a record of history.
fn decode_record(record: &HistoryRecord) -> Result<ReportHead, ServiceError> {
    serde_json::from_slice(&record.head).map_err(|error| {
        let what = format!("cannot read the report of run {}", record.id.id);
        ServiceError::internal(what, error)
    })
}
