//! Conversion of the engine's events to report events.

use std::collections::HashMap;
use std::sync::Arc;

use bunraku_engine::{
    Change, DisplayValue, Event, EventSink, FailedAttempt, Reason, ResourceOutcome, ResourceResult,
    Status, Stream,
};
use bunraku_model::Catalog;
use bunraku_model::catalog::ResourceReference;
use bunraku_wire::api::{EventStatus, PropertyChange, ReportEvent, ResourceEvent};
use serde_json::{Map, Value};

use crate::reports::Recorder;
use crate::reports::shortened;

/// Longer values and diffs are truncated: a report is not a copy of the machine.
const LONGEST: usize = 32 << 10;
/// Larger outputs are truncated, and other nodes do not get them.
const LARGEST_OUTPUTS: usize = 48 << 10;

/// Writes the engine's events to a report.
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

    fn resource(&self, finished: &ResourceResult) -> ResourceEvent {
        let outcome = &finished.outcome;
        let register = self.registers.get(&*finished.reference).cloned();
        // Only requested outputs are included: they can be large.
        let (outputs, outputs_withheld) = match register {
            Some(_) => outputs(outcome),
            None => (Map::new(), None),
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
            outputs_withheld,
        }
    }
}

impl EventSink for ReportSink {
    fn emit(&self, event: Event<'_>) {
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
            Event::Retrying(FailedAttempt {
                reference,
                attempt,
                wait,
                why,
            }) => {
                let text = format!(
                    "attempt {attempt} failed, retrying in {:.0} s: {why}",
                    wait.as_secs_f64()
                );
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

/// Returns the outputs for the report, and the reason why other nodes do not get them.
fn outputs(outcome: &ResourceOutcome) -> (Map<String, Value>, Option<String>) {
    let mut outputs = outcome.outputs.clone();
    if outcome.secret_outputs {
        return (outputs, Some("it is a secret and is not sent".to_owned()));
    }
    let size = serde_json::to_string(&outputs).map_or(0, |text| text.len());
    if size <= LARGEST_OUTPUTS {
        return (outputs, None);
    }
    for output in outputs.values_mut() {
        if let Value::String(text) = output {
            *text = shortened(text, LONGEST / 4);
        } else if output.is_object() || output.is_array() {
            *output = Value::from(shortened(&output.to_string(), LONGEST / 4));
        }
    }
    let why = format!("it has {size} bytes, which exceeds the limit of {LARGEST_OUTPUTS}");
    (outputs, Some(why))
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
        from: display_text(&change.from),
        to: display_text(&change.to),
        diff: (change.diff.as_deref()).map(|text| shortened(text, LONGEST)),
    }
}

fn display_text(value: &DisplayValue) -> Option<String> {
    match value {
        DisplayValue::Absent => None,
        DisplayValue::Secret => Some("[secret]".to_owned()),
        DisplayValue::Value(Value::String(text)) => Some(shortened(text, LONGEST)),
        DisplayValue::Value(value) => Some(shortened(&value.to_string(), LONGEST)),
    }
}
