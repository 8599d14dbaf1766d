//! From what the engine tells to what a report says.

use std::collections::HashMap;
use std::sync::Arc;

use bunraku_engine::{Change, Event, EventSink, Finished, Reason, Shown, Status, Stream};
use bunraku_model::Catalog;
use bunraku_model::catalog::ResourceReference;
use bunraku_wire::api::{EventStatus, PropertyChange, ReportEvent, ResourceEvent};
use serde_json::{Map, Value};

use crate::reports::Recorder;
use crate::reports::shortened;

/// Longer values and diffs are cut: a report is no copy of the machine.
const LONGEST: usize = 32 << 10;

/// Writes the engine's events into a report.
pub(super) struct ReportSink {
    recorder: Arc<Recorder>,
    registers: HashMap<ResourceReference, String>,
}

impl ReportSink {
    pub(super) fn new(recorder: Arc<Recorder>, catalog: &Catalog) -> Self {
        let registers = (catalog.resources.iter())
            .filter_map(|resource| {
                let name = resource.parameters.get("register")?.as_str()?;
                Some((resource.reference(), name.to_owned()))
            })
            .collect();
        Self {
            recorder,
            registers,
        }
    }

    fn resource(&self, finished: &Finished) -> ResourceEvent {
        let outcome = &finished.outcome;
        let register = self.registers.get(&*finished.reference).cloned();
        // Only what somebody asked for: outputs can be large.
        let outputs = match register {
            Some(_) => outcome.outputs.clone(),
            None => Map::new(),
        };
        ResourceEvent {
            type_name: finished.reference.type_name().to_owned(),
            title: finished.reference.title().to_owned(),
            file: finished.place.file.clone(),
            line: finished.place.line,
            status: status(outcome.status),
            at: self.recorder.now(),
            duration_seconds: outcome.duration.as_secs_f64(),
            corrective: outcome.corrective,
            refreshed: outcome.refreshed,
            changes: outcome.changes.iter().map(property_change).collect(),
            reasons: outcome.reasons.iter().map(Reason::to_string).collect(),
            message: (outcome.message.as_deref()).map(|text| shortened(text, LONGEST)),
            register,
            outputs,
        }
    }
}

impl EventSink for ReportSink {
    fn tell(&self, event: Event<'_>) {
        match event {
            Event::Begun { .. } | Event::Started { .. } => {}
            Event::Output {
                reference,
                stream,
                line,
            } => {
                let level = match stream {
                    Stream::Stdout => "info",
                    Stream::Stderr => "warning",
                };
                self.recorder.log(level, Some(reference.to_string()), line);
            }
            Event::Retrying {
                reference,
                attempt,
                wait,
                why,
            } => {
                let text = format!("attempt {attempt} failed, the next is in {wait:?}: {why}");
                let source = Some(reference.to_string());
                self.recorder.log("warning", source, &text);
            }
            Event::Finished(finished) => {
                let event = Box::new(self.resource(finished));
                self.recorder.record(ReportEvent::Resource(event));
            }
        }
    }
}

fn status(status: Status) -> EventStatus {
    match status {
        Status::Unchanged => EventStatus::Unchanged,
        Status::Changed => EventStatus::Changed,
        Status::Pending => EventStatus::Pending,
        Status::Failed => EventStatus::Failed,
        Status::Skipped => EventStatus::Skipped,
    }
}

fn property_change(change: &Change) -> PropertyChange {
    PropertyChange {
        property: change.property.clone(),
        from: shown(&change.from),
        to: shown(&change.to),
        diff: (change.diff.as_deref()).map(|text| shortened(text, LONGEST)),
    }
}

fn shown(value: &Shown) -> Option<String> {
    match value {
        Shown::Absent => None,
        Shown::Secret => Some("[secret]".to_owned()),
        Shown::Value(Value::String(text)) => Some(shortened(text, LONGEST)),
        Shown::Value(value) => Some(shortened(&value.to_string(), LONGEST)),
    }
}
