//! Conversion of Puppet's report to our report events.
//!
//! Pure. Resources that Puppet adds to every catalog (its schedules, its file bucket) are omitted
//! if nothing happened to them.

use std::collections::HashMap;

use base64::Engine as _;
use bunraku_wire::api::{EventStatus, LogLine, PropertyChange, ReportEvent, ResourceEvent};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::report::{PuppetEvent, PuppetLog, PuppetReport, ResourceStatus, text};
use crate::reports::shortened;

/// Longer values are truncated: a report is not a copy of the machine.
const LONGEST: usize = 32 << 10;
/// Longer lines are truncated.
const LONGEST_LINE: usize = 16 << 10;
/// The maximum number of messages that explain why one resource was skipped.
const MOST_REASONS: usize = 5;

impl PuppetReport {
    /// Returns every resource, in the order of the run.
    pub(super) fn resources(&self, now: Timestamp) -> impl Iterator<Item = ReportEvent> + '_ {
        let logs_by_resource = self.logs_by_source();
        (self.resource_statuses.iter())
            .filter(|status| !status.is_puppets_own())
            .map(move |status| {
                ReportEvent::Resource(Box::new(status.event(&logs_by_resource, now)))
            })
    }

    /// Returns one line with the durations and with what was applied.
    pub(super) fn about(&self) -> String {
        let unknown = || "?".to_owned();
        let value = |value: &Option<Value>| value.as_ref().and_then(text).unwrap_or_else(unknown);
        let mut about = format!(
            "Puppet {}, environment {}, configuration version {}, transaction {}",
            value(&self.puppet_version),
            self.environment.clone().unwrap_or_else(unknown),
            value(&self.configuration_version),
            self.transaction_uuid,
        );
        let mut times: Vec<_> = self.metrics.iter().collect();
        times.sort_by(|one, other| other.1.total_cmp(&one.1));
        let times = times.iter().take(20);
        let times: Vec<String> = times
            .map(|(name, seconds)| format!("{name} {seconds:.2} s"))
            .collect();
        if !times.is_empty() {
            about.push_str("; ");
            about.push_str(&times.join(", "));
        }
        shortened(&about, LONGEST_LINE)
    }

    /// Returns the reason why the run failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        let failed: Vec<&ResourceStatus> = (self.resource_statuses.iter())
            .filter(|status| status.status() == EventStatus::Failed)
            .collect();
        if let Some(first) = failed.first() {
            let more = match failed.len() {
                1 => String::new(),
                all => format!(", and {} more failed", all - 1),
            };
            let logs_by_resource = self.logs_by_source();
            let why = first.why_it_failed(&logs_by_resource).unwrap_or_default();
            return Some(format!("{} failed: {why}{more}", first.reference()));
        }
        let completed = self.transaction_completed != Some(false);
        if self.status.as_deref() != Some("failed") && completed {
            return None;
        }
        let mut errors = self.logs.iter().filter(|log| log.is_error());
        // The first error is the cause. Facter's errors are noise that stops nothing.
        let cause = errors.find(|log| log.source.as_deref() != Some("Facter"));
        Some(match cause {
            Some(log) => shortened(&log.message, LONGEST_LINE),
            None => "Puppet reported a failed run without a reason".to_owned(),
        })
    }

    fn logs_by_source(&self) -> LogsByResource<'_> {
        let mut logs_by_resource = LogsByResource::new();
        for log in &self.logs {
            if let Some(source) = &log.source {
                logs_by_resource.entry(source).or_default().push(log);
            }
        }
        logs_by_resource
    }
}

/// Log lines, by the resource that wrote them.
type LogsByResource<'a> = HashMap<&'a str, Vec<&'a PuppetLog>>;

impl ResourceStatus {
    fn is_puppets_own(&self) -> bool {
        let kind = self.resource_type.as_deref();
        self.file.is_none()
            && matches!(kind, Some("Schedule" | "Filebucket"))
            && self.status() == EventStatus::Unchanged
    }

    fn reference(&self) -> String {
        let kind = self.resource_type.as_deref().unwrap_or("?");
        shortened(&format!("{kind}[{}]", self.title), LONGEST)
    }

    fn status(&self) -> EventStatus {
        let is = |flag: Option<bool>| flag == Some(true);
        let any = |status: &str| {
            let mut events = self.events.iter();
            events.any(|event| event.status.as_deref() == Some(status))
        };
        if is(self.failed) || is(self.failed_to_restart) || any("failure") {
            EventStatus::Failed
        } else if is(self.skipped) {
            EventStatus::Skipped
        } else if is(self.changed) || any("success") {
            EventStatus::Changed
        } else if any("noop") {
            EventStatus::Pending
        } else {
            EventStatus::Unchanged
        }
    }

    fn event(&self, logs_by_resource: &LogsByResource<'_>, now: Timestamp) -> ResourceEvent {
        let status = self.status();
        ResourceEvent {
            type_name: self.resource_type.clone().unwrap_or_else(|| "?".to_owned()),
            title: shortened(&self.title, LONGEST),
            file: self.file.clone(),
            line: self.line,
            status,
            at: time(self.time.as_deref()).unwrap_or(now),
            duration_seconds: self
                .evaluation_time
                .filter(|time| time.is_finite())
                .unwrap_or(0.0),
            corrective: self.corrective_change == Some(true)
                || (self.events.iter()).any(|event| event.corrective_change == Some(true)),
            refreshed: self.events.iter().any(PuppetEvent::is_refresh),
            changes: self.events.iter().filter_map(PuppetEvent::change).collect(),
            reasons: self.reasons(status, logs_by_resource),
            message: match status {
                EventStatus::Failed => self.why_it_failed(logs_by_resource),
                _ => None,
            },
            register: None,
            outputs: Map::new(),
            outputs_withheld: None,
        }
    }

    fn lines<'a>(&self, logs_by_resource: &'a LogsByResource<'a>) -> &'a [&'a PuppetLog] {
        let path = self.containment_path.as_deref().unwrap_or_default();
        let source = format!("/{}", path.join("/"));
        logs_by_resource
            .get(source.as_str())
            .map_or(&[], Vec::as_slice)
    }

    fn reasons(&self, status: EventStatus, logs_by_resource: &LogsByResource<'_>) -> Vec<String> {
        let refreshes = self.events.iter().filter(|event| event.is_refresh());
        let mut reasons: Vec<String> = refreshes.map(|event| event.message.clone()).collect();
        if status == EventStatus::Skipped {
            reasons.extend(
                self.lines(logs_by_resource)
                    .iter()
                    .map(|log| log.message.clone()),
            );
        }
        reasons.truncate(MOST_REASONS);
        (reasons.iter())
            .map(|reason| shortened(reason, LONGEST_LINE))
            .collect()
    }

    fn why_it_failed(&self, logs_by_resource: &LogsByResource<'_>) -> Option<String> {
        let mut events = self.events.iter();
        let failed = events.find(|event| event.status.as_deref() == Some("failure"));
        let lines = self.lines(logs_by_resource);
        let message = match failed {
            Some(event) => Some(&event.message),
            None => (lines.iter().find(|log| log.is_error())).map(|log| &log.message),
        };
        message.map(|message| shortened(message, LONGEST))
    }
}

impl PuppetEvent {
    fn is_refresh(&self) -> bool {
        self.property.is_none() && self.name.as_deref() == Some("refresh")
    }

    fn change(&self) -> Option<PropertyChange> {
        let property = self.property.clone()?;
        if self.status.as_deref() == Some("audit") {
            return None;
        }
        let shown = |value: &Value| match self.redacted {
            Some(true) => Some("[secret]".to_owned()),
            _ => text(value).map(|text| shortened(&decode_checksum(text), LONGEST)),
        };
        Some(PropertyChange {
            property,
            from: shown(&self.previous_value),
            to: shown(&self.desired_value),
            diff: None,
        })
    }
}

/// Decodes checksums of contents. Puppet writes some of them in Base64 and does not say so.
fn decode_checksum(text: String) -> String {
    let decoded = base64::engine::general_purpose::STANDARD.decode(&text).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let is_checksum = |text: &String| {
        let parts = text.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        parts.is_some_and(|(_, sum)| sum.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    decoded.filter(is_checksum).unwrap_or(text)
}

impl PuppetLog {
    pub(super) fn is_error(&self) -> bool {
        matches!(self.level.as_str(), "err" | "alert" | "emerg" | "crit")
    }

    /// Converts a line to our report format. Lines from Puppet itself have no source.
    pub(super) fn line(&self, now: Timestamp) -> LogLine {
        let level = match self.level.as_str() {
            level @ ("debug" | "info" | "notice" | "warning") => level,
            _ if self.is_error() => "error",
            _ => "info",
        };
        let source = self.source.clone().filter(|source| source != "Puppet");
        LogLine {
            at: time(self.time.as_deref()).unwrap_or(now),
            level: level.to_owned(),
            source: source.map(|source| shortened(&source, LONGEST)),
            message: shortened(&self.message, LONGEST_LINE),
        }
    }
}

fn time(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}
