//! A report without its events, and the effect of a batch on it.
//!
//! [`ReportHead::accept`] is pure: it drops events that are already stored, refuses a
//! gap and names the expected number, and returns what to store.

use bunraku_model::{ContentId, NodeName, NodeRunId};
use bunraku_store::history::{HistoryRecord, RecordId, in_microseconds};
use bunraku_wire::api::{
    EventCounts, EventStatus, FailedResource, NumberedEvent, OmittedEvents, ReportBatch,
    ReportEvent, ReportReceipt, ReportRepeats, ReportState, ReportSummary, ResourceEvent,
    RunEnding, RunFinished, RunStarted,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ServiceError, document};

/// The number of failed resources that a head names.
const FAILURES_NAMED: usize = 5;
/// The status of a run that has not ended.
const UNFINISHED: &str = "unfinished";
/// The number of characters of a failure's message that a head keeps.
const MESSAGE_KEPT: usize = 500;

/// The stored head of a report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReportHead {
    pub node: NodeName,
    pub run: NodeRunId,
    pub started: RunStarted,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<RunFinished>,
    pub counts: EventCounts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailedResource>,
    #[serde(default)]
    pub omitted: u64,
    pub next: u64,
    pub first_received: Timestamp,
    pub last_received: Timestamp,
    /// The bytes of all its events, before compression.
    #[serde(default)]
    pub bytes: u64,
    /// The blob with all events, once the run is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentId>,
    /// `true` if the events are one small value in the store, instead of a blob.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
    /// `true` if the events are few and stay in their batches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub small: bool,
    /// `true` if the events are in a history of their own, and not in the store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    /// The number of the first event of the batch that led to this version of the head. Absent if
    /// something else did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_batch: Option<u64>,
    /// Later runs of the node's schedule with the same result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<ReportRepeats>,
}

/// The effect of a batch.
#[derive(PartialEq, Debug)]
pub(super) enum BatchEffect {
    /// All events were stored before.
    Nothing(ReportReceipt),
    Store {
        head: Box<ReportHead>,
        /// The new events, without those stored before.
        events: Vec<NumberedEvent>,
    },
}

/// The owner of the report and the arrival time of the batch.
pub(super) struct BatchArrival<'a> {
    pub(super) node: &'a NodeName,
    pub(super) run: NodeRunId,
    pub(super) now: Timestamp,
}

impl ReportHead {
    /// Applies a batch to a report, which may not exist yet.
    pub(super) fn accept(
        known: Option<Self>,
        batch: ReportBatch,
        arrival: &BatchArrival<'_>,
    ) -> Result<BatchEffect, ServiceError> {
        let next = known.as_ref().map_or(0, |head| head.next);
        let finished = known.as_ref().is_some_and(|head| head.finished.is_some());
        let events = new_events(batch, next)?;
        if events.is_empty() {
            return Ok(BatchEffect::Nothing(ReportReceipt { next, finished }));
        }
        let mut head = known;
        let newest_batch = events.first().map(|event| event.number);
        for event in &events {
            match &mut head {
                None => head = Some(Self::begin(event, arrival)?),
                Some(head) => head.note(event, arrival.now)?,
            }
        }
        let mut head = Box::new(head.expect("there was an event, and it began the report"));
        head.newest_batch = newest_batch;
        Ok(BatchEffect::Store { head, events })
    }

    fn begin(event: &NumberedEvent, arrival: &BatchArrival<'_>) -> Result<Self, ServiceError> {
        let ReportEvent::Started(started) = &event.event else {
            return Err(ServiceError::invalid("a report must begin with `started`"));
        };
        Ok(Self {
            node: arrival.node.clone(),
            run: arrival.run,
            started: started.clone(),
            finished: None,
            counts: EventCounts::default(),
            failures: Vec::new(),
            omitted: 0,
            next: 1,
            first_received: in_microseconds(arrival.now),
            last_received: arrival.now,
            bytes: 0,
            content: None,
            packed: false,
            small: false,
            elsewhere: false,
            newest_batch: None,
            repeats: None,
        })
    }

    fn note(&mut self, event: &NumberedEvent, now: Timestamp) -> Result<(), ServiceError> {
        if self.finished.is_some() {
            return Err(ServiceError::invalid("no event may follow `finished`"));
        }
        match &event.event {
            ReportEvent::Started(_) => {
                return Err(ServiceError::invalid(
                    "`started` must be the first event, and occur once",
                ));
            }
            ReportEvent::Resource(resource) => self.note_resource(resource),
            ReportEvent::Log(_) => {}
            ReportEvent::Omitted(omitted) => self.omitted += omitted.count,
            ReportEvent::Finished(finished) => {
                self.counts = finished.counts();
                self.finished = Some(finished.clone());
            }
        }
        self.next = event.number + event.event.width();
        self.last_received = now;
        Ok(())
    }

    fn note_resource(&mut self, event: &ResourceEvent) {
        self.counts.note(event);
        if event.status == EventStatus::Failed && self.failures.len() < FAILURES_NAMED {
            let shortened = |text: &String| text.chars().take(MESSAGE_KEPT).collect();
            self.failures.push(FailedResource {
                resource: format!("{}[{}]", event.type_name, event.title),
                message: event.message.as_ref().map(shortened),
            });
        }
    }

    /// Of two versions of a head, the newer one has the higher number.
    pub(super) fn version(&self) -> u64 {
        let repeats = self.repeats.map_or(0, |repeats| repeats.count);
        self.next.saturating_add(repeats)
    }

    /// The head as a record of history.
    pub(super) fn record(&self) -> HistoryRecord {
        let ending = self.finished.as_ref().map(|finished| finished.ending);
        HistoryRecord {
            id: RecordId::new(self.node.as_str(), self.run.to_string()),
            at: in_microseconds(self.first_received),
            version: self.version(),
            status: ending.map_or(UNFINISHED, RunEnding::as_str).to_owned(),
            is_problem: ending != Some(RunEnding::Succeeded),
            is_closed: ending.is_some() && !self.elsewhere,
            head: document::encode(self),
        }
    }

    /// The head of a report whose events were moved out of the store.
    pub(super) fn moved_elsewhere(self) -> Self {
        Self {
            elsewhere: true,
            content: None,
            packed: false,
            small: false,
            newest_batch: None,
            ..self
        }
    }

    /// Returns whether all events are where they stay.
    pub(super) fn is_settled(&self) -> bool {
        self.content.is_some() || self.packed || self.small
    }

    pub(super) fn receipt(&self) -> ReportReceipt {
        ReportReceipt {
            next: self.next,
            finished: self.finished.is_some(),
        }
    }

    /// The report as callers see it. `lost`: its node is not connected. The events of reports from
    /// before the given time are deleted.
    pub(super) fn summary(
        self,
        lost: bool,
        events_deleted_before: Option<Timestamp>,
    ) -> ReportSummary {
        let state = match (&self.finished, lost) {
            (Some(_), _) => ReportState::Finished,
            (None, true) => ReportState::Lost,
            (None, false) => ReportState::Running,
        };
        ReportSummary {
            node: self.node,
            run: self.run,
            state,
            started: self.started,
            finished: self.finished,
            counts: self.counts,
            failures: self.failures,
            omitted: self.omitted,
            next: self.next,
            first_received: self.first_received,
            last_received: self.last_received,
            events_deleted_before: events_deleted_before.filter(|it| self.first_received < *it),
            repeats: self.repeats,
        }
    }
}

/// Returns the events from `next` on, with their numbers.
fn new_events(batch: ReportBatch, next: u64) -> Result<Vec<NumberedEvent>, ServiceError> {
    let mut events = Vec::with_capacity(batch.events.len());
    let (mut number, mut wanted) = (batch.first, next);
    for event in batch.events {
        let end = number
            .checked_add(event.width())
            // No history counts further than this.
            .filter(|end| *end > number && *end < i64::MAX as u64)
            .ok_or_else(|| ServiceError::invalid("an event has no number or too many"))?;
        if end > wanted {
            if number > wanted {
                return Err(ServiceError::Gap { wanted });
            }
            let event = from_number(event, wanted - number);
            events.push(NumberedEvent {
                number: wanted,
                event,
            });
            wanted = end;
        }
        number = end;
    }
    Ok(events)
}

/// Returns an event without its first numbers. Only `omitted` has several.
fn from_number(event: ReportEvent, skipped: u64) -> ReportEvent {
    match event {
        ReportEvent::Omitted(omitted) => ReportEvent::Omitted(OmittedEvents {
            count: omitted.count - skipped,
            ..omitted
        }),
        event => event,
    }
}

#[cfg(test)]
mod tests;
