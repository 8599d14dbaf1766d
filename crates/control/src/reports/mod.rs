//! The report service: the actions of nodes, event by event.
//!
//! A report is a head (small, one key) and its events: one key per batch while
//! the run is in progress, one value or one blob once it is finished. A batch is stored in one
//! transaction that compares the head. Of two overlapping batches one wins, and
//! the other is dropped or continues after it.
//!
//! A run of the schedule that ends like the one before it, without a change, gets no report: the
//! report before it counts it (`repeats`).
//!
//! Rules: an event has a number and is stored once, and nothing is stored after a
//! gap. Order and age use the server's clock, not the node's.
//!
//! Absent: the purpose of a run, and when it starts (`commands`, and the agent).

mod budget;
mod follow;
mod head;
mod last_run;
mod outputs;
mod read;
mod repeats;
mod retention;
mod subscribe;

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{NodeName, NodeRunId};
use bunraku_store::blobs::{BlobError, SharedBlobs};
use bunraku_store::{SharedStore, Swap, Transaction, compare_and_swap};
use bunraku_wire::api::{NumberedEvent, ReportBatch, ReportReceipt, RunEnding};
use serde::{Deserialize, Serialize};

pub use follow::FollowedEvents;
pub use head::ReportHead;
pub(crate) use last_run::StoredLastRun;
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
/// The number of folded requests whose ids lead to the report of the run that served them.
const ALSO_INDEXED: usize = 64;

/// The limits on stored reports.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// The most reports of one node. Beyond this, the oldest are deleted.
    pub kept_per_node: usize,
    /// The age at which reports are deleted.
    pub kept_for: Duration,
    /// The bytes of all reports of one node. Beyond this, the oldest are deleted.
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
            bytes_per_node: 256 << 20,
            open_bytes_per_node: 64 << 20,
            open_per_node: 50,
            bytes_per_report: 32 << 20,
            abandoned_after: Duration::from_secs(3_600),
        }
    }
}

/// The most claims that one index entry remembers.
const MOST_CLAIMS: usize = 8;

/// The handle on the report service.
#[derive(Clone)]
pub struct Reports {
    store: SharedStore,
    blobs: SharedBlobs,
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

/// The location of a run's report.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ReportPlace {
    node: NodeName,
    run: NodeRunId,
    /// Other nodes that report a run with this id. Ids are chosen by those who request runs, and
    /// a node could use the id of another node's run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    also_claimed_by: Vec<NodeName>,
}

impl Reports {
    pub fn new(
        store: SharedStore,
        blobs: SharedBlobs,
        clock: Clock,
        options: ReportOptions,
    ) -> Self {
        Self {
            store,
            blobs,
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
            let known = self.head(node, run).await?;
            let arrival = BatchArrival {
                node,
                run,
                now: self.clock.now(),
            };
            if known.is_none()
                && let Some(repeated) = self.repeat(batch, &arrival).await?
            {
                return Ok(repeated);
            }
            let before = known.as_ref().map(|known| known.document.clone());
            let written = before.as_ref().map_or(0, |head| head.bytes);
            let batch = self.within_report(batch.clone(), written);
            let (mut head, events) = match ReportHead::accept(before, batch, &arrival)? {
                BatchEffect::Nothing(receipt) => {
                    return Ok(Swap::Done(AcceptedBatch {
                        receipt,
                        stored: 0,
                        ended: None,
                        needs_settling: false,
                    }));
                }
                BatchEffect::Store { head, events } => (head, events),
            };
            head.bytes += document::encode(&events).len() as u64;
            head.small = head.finished.is_some() && head.bytes <= LARGEST_SMALL;
            self.check_budget(&head, written, known.is_none()).await?;
            // Before the end of the run becomes visible, because others wait for that.
            let now = arrival.now;
            outputs::note(&self.store, node, run, &events, now).await?;
            let taken = AcceptedBatch {
                receipt: head.receipt(),
                stored: events.len(),
                ended: head.finished.as_ref().map(|finished| finished.ending),
                needs_settling: head.finished.is_some(),
            };
            let transaction = self.store_events(known.as_ref(), &head, &events).await?;
            Ok(Swap::Write(transaction, taken))
        })
        .await
    }

    async fn store_events(
        &self,
        known: Option<&Versioned<ReportHead>>,
        head: &ReportHead,
        events: &[NumberedEvent],
    ) -> Result<Transaction, ServiceError> {
        let (node, run) = (&head.node, head.run);
        let key = keys::report(node, run);
        let mut transaction = node_condition::when_exists(node)
            .when_unchanged(&key, known.map(|known| &known.entry))
            .put(key, document::encode(head))
            .put(
                keys::report_events(node, run, events[0].number),
                document::encode(&events),
            );
        if known.is_none() {
            transaction = self.index(transaction, head).await?;
        }
        let open = keys::open_report(node, run);
        transaction = match (known.is_some(), head.small) {
            (false, false) => transaction.put(open, ""),
            (true, true) => transaction.delete(open),
            (false, true) | (true, false) => transaction,
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

    /// Adds every index entry that leads to a new report. An entry that leads to a report of
    /// another node stays as it is, and notes that this node claims it too.
    async fn index(
        &self,
        mut transaction: Transaction,
        head: &ReportHead,
    ) -> Result<Transaction, ServiceError> {
        let place = ReportPlace {
            node: head.node.clone(),
            run: head.run,
            also_claimed_by: Vec::new(),
        };
        for id in indexed_ids(head) {
            let key = keys::report_id(id);
            let known = document::read::<ReportPlace>(&*self.store, &key).await?;
            let entry = known.as_ref().map(|known| &known.entry);
            transaction = transaction.when_unchanged(&key, entry);
            transaction = match known.map(|known| known.document) {
                Some(mut other) if other.node != head.node => {
                    let claims = &mut other.also_claimed_by;
                    if !claims.contains(&head.node) && claims.len() < MOST_CLAIMS {
                        claims.push(head.node.clone());
                    }
                    tracing::warn!(node = %head.node, run = %id, of = %other.node, "a node reports a run under the id of another node's run");
                    transaction.put(key, document::encode(&other))
                }
                _ => transaction.put(key, document::encode(&place)),
            };
        }
        Ok(transaction.put(
            keys::report_time(head.first_received, head.run),
            document::encode(&place),
        ))
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

fn blob_error(error: BlobError) -> ServiceError {
    ServiceError::content("cannot use a report's events", error)
}
