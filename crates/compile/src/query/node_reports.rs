//! A node's reports in the index: the newest ones, and the changes in them.
//!
//! Nodes control the content of reports, so everything has a limit: the reports
//! of a node, the events of a report, the length of a text. Of the events, only
//! those of resources that were not in the desired state are indexed.

use std::collections::BTreeMap;

use bunraku_model::NodeRunId;
use bunraku_wire::api::{EventStatus, NumberedEvent, ReportEvent, ResourceEvent, RunMode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use bunraku_control::reports::ReportHead;

/// Number of reports of one node in the index.
const REPORTS: usize = 10;
/// Number of event rows of one report in the index; the first ones are kept.
const EVENTS: usize = 1_000;
/// Maximum number of characters of a value or a message.
const LONGEST: usize = 1_000;
/// The status of a run that has not ended, whatever happened to its node.
const UNFINISHED: &str = "unfinished";

/// All reports of one node, and the ones that the index has.
#[derive(Default)]
pub(super) struct NodeReports {
    /// In the order in which they reached a server.
    seen: BTreeMap<(Timestamp, NodeRunId), ReportDigest>,
    in_index: BTreeMap<NodeRunId, IndexedReport>,
    /// Removed from the store, but not from the index yet.
    gone: Vec<NodeRunId>,
}

/// The data kept of every report.
struct ReportDigest {
    next: u64,
    /// Set for a finished report.
    status: Option<&'static str>,
    mode: RunMode,
    corrective: bool,
    received: Timestamp,
}

/// The part of a report that the index has.
#[derive(Clone, Copy, Default)]
pub(super) struct IndexedReport {
    /// The number of the first event that the index does not have.
    pub(super) next: u64,
    pub(super) rows: usize,
}

impl NodeReports {
    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Keeps the data of a head. Without a head, the report is gone.
    pub(super) fn note(&mut self, run: NodeRunId, head: Option<&ReportHead>) {
        let Some(head) = head else {
            self.gone.extend(self.in_index.remove(&run).map(|_| run));
            return self.seen.retain(|(_, other), _| *other != run);
        };
        let seen = ReportDigest {
            next: head.next,
            status: (head.finished.as_ref()).map(|finished| finished.ending.as_str()),
            mode: head.started.mode,
            corrective: head.counts.corrective > 0,
            received: head.last_received,
        };
        self.seen.insert((head.first_received, run), seen);
    }

    /// Resets the state, because the index no longer has data of this node.
    pub(super) fn reset(&mut self) {
        self.in_index.clear();
        self.gone.clear();
    }

    pub(super) fn mark_indexed(&mut self, run: NodeRunId, in_index: IndexedReport) {
        self.in_index.insert(run, in_index);
    }

    /// Returns the reports to remove from the index, and those to read because
    /// they have more events than the index.
    pub(super) fn differences(&mut self) -> (Vec<NodeRunId>, Vec<(NodeRunId, IndexedReport)>) {
        let newest = self.seen.iter().rev().take(REPORTS);
        let newest: BTreeMap<NodeRunId, u64> =
            newest.map(|((_, run), seen)| (*run, seen.next)).collect();
        let surplus = self.in_index.keys().copied();
        let surplus: Vec<NodeRunId> = surplus.filter(|run| !newest.contains_key(run)).collect();
        for run in &surplus {
            self.in_index.remove(run);
        }
        let mut gone = std::mem::take(&mut self.gone);
        gone.extend(surplus);
        let wanted = newest.into_iter().filter_map(|(run, next)| {
            let in_index = self.in_index.get(&run).copied().unwrap_or_default();
            (in_index.next < next).then_some((run, in_index))
        });
        (gone, wanted.collect())
    }

    /// Returns the node fields from its newest finished report. Without one, they are null.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let finished = |(_, seen): &(_, &ReportDigest)| seen.status.is_some();
        let newest = self.seen.iter().rev().find(finished);
        object(json!({
            "report": newest.map(|((_, run), _)| run),
            "report_status": newest.and_then(|(_, seen)| seen.status),
            "report_mode": newest.map(|(_, seen)| seen.mode),
            "report_corrective": newest.map(|(_, seen)| seen.corrective),
            "report_time": newest.map(|(_, seen)| seen.received),
        }))
    }
}

pub(super) fn report_row(head: &ReportHead) -> Map<String, Value> {
    let (started, finished) = (&head.started, head.finished.as_ref());
    let counts = &head.counts;
    without_nulls(json!({
        "status": finished.map_or(UNFINISHED, |finished| finished.ending.as_str()),
        "mode": started.mode,
        "start_time": started.at,
        "end_time": finished.map(|finished| finished.at),
        "duration_seconds": finished.map(|finished| finished.duration_seconds),
        "changed": counts.changed,
        "pending": counts.pending,
        "failed": counts.failed,
        "skipped": counts.skipped,
        "unchanged": counts.unchanged,
        "corrective": counts.corrective,
        "environment": started.environment,
        "release": started.release,
        "catalog": started.catalog,
        "code_id": started.code_id,
        "from_cache": started.from_cache,
        "method": shortened(&started.method),
        "message": finished.and_then(|finished| finished.message.as_deref()).map(shortened),
    }))
}

/// Returns a row for each property that changed, or one for the resource. `had`
/// is the number of rows that the report already has.
pub(super) fn event_rows(events: &[NumberedEvent], had: usize) -> Vec<Map<String, Value>> {
    let resources = events.iter().filter_map(|event| match &event.event {
        ReportEvent::Resource(resource) if resource.status != EventStatus::Unchanged => {
            Some(resource)
        }
        _ => None,
    });
    let rows = resources.flat_map(|resource| resource_rows(resource));
    rows.take(EVENTS.saturating_sub(had)).collect()
}

fn resource_rows(resource: &ResourceEvent) -> Vec<Map<String, Value>> {
    let row = without_nulls(json!({
        "time": resource.at,
        "type": shortened(&resource.type_name),
        "title": shortened(&resource.title),
        "status": resource.status,
        "corrective": resource.corrective,
        "message": resource.message.as_deref().map(shortened),
        "file": resource.file.as_deref().map(shortened),
        "line": resource.line,
    }));
    if resource.changes.is_empty() {
        return vec![row];
    }
    let changes = resource.changes.iter().take(EVENTS).map(|change| {
        let mut row = row.clone();
        row.extend(without_nulls(json!({
            "property": shortened(&change.property),
            "old_value": change.from.as_deref().map(shortened),
            "new_value": change.to.as_deref().map(shortened),
        })));
        row
    });
    changes.collect()
}

fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(LONGEST);
    end.map_or(text, |(end, _)| &text[..end])
}

fn without_nulls(value: Value) -> Map<String, Value> {
    let mut row = object(value);
    row.retain(|_, value| !value.is_null());
    row
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => unreachable!("it was written as an object"),
    }
}
