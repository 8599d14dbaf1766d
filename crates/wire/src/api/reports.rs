//! Reports: the events of one node run, in their order.
//!
//! An agent numbers the events of a run from 0 and sends them in batches to
//! `POST /v1/nodes/{node}/reports/{run}/events`. The receipt says which
//! number comes next: what is sent again is dropped, a gap is refused with
//! the number that is missing. The first event is `started`, the last one
//! `finished`; a report without it is an unfinished run.
//!
//! An event that was lost keeps its number: `omitted` stands for as many
//! numbers as it says, so that a loss is told and never looks like a gap.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeName, NodeRunId, ReleaseNumber};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Cause, RunMode};

/// Some events of one run, without gaps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportBatch {
    /// The number of the first of them.
    pub first: u64,
    pub events: Vec<ReportEvent>,
}

/// Everything before `next` is stored durably.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportReceipt {
    pub next: u64,
    /// The last event is there: nothing more is wanted.
    #[serde(default)]
    pub finished: bool,
}

/// One thing that happened in a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ReportEvent {
    Started(RunStarted),
    /// A resource is done with.
    Resource(Box<ResourceEvent>),
    Log(LogLine),
    /// Events that the agent could not keep.
    Omitted(OmittedEvents),
    Finished(RunFinished),
}

impl ReportEvent {
    /// How many numbers it takes.
    pub fn width(&self) -> u64 {
        match self {
            Self::Omitted(omitted) => omitted.count,
            _ => 1,
        }
    }
}

/// Stands for events that are not there, and says why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OmittedEvents {
    pub count: u64,
    pub reason: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunStarted {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub mode: RunMode,
    pub causes: Vec<Cause>,
    /// Causes beyond those that are remembered one by one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_causes: u64,
    /// Requests that this run serves too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub also: Vec<NodeRunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub environment: Option<EnvironmentName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub release: Option<ReleaseNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub catalog: Option<CatalogId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    /// No server could be reached: the catalog came from the agent's cache.
    #[serde(default)]
    pub from_cache: bool,
    /// How many resources there are to do.
    #[serde(default)]
    pub resources: u64,
    /// What carries it out: `engine`, `puppet`, `command`.
    pub method: String,
}

impl RunStarted {
    /// The start of a run without causes and without a catalog.
    pub fn new(at: Timestamp, mode: RunMode, method: &str) -> Self {
        Self {
            at,
            mode,
            causes: Vec::new(),
            more_causes: 0,
            also: Vec::new(),
            environment: None,
            release: None,
            catalog: None,
            code_id: None,
            from_cache: false,
            resources: 0,
            method: method.to_owned(),
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ResourceEvent {
    #[serde(rename = "type")]
    pub type_name: String,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    pub status: EventStatus,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub duration_seconds: f64,
    /// The machine had drifted from what the last run left.
    #[serde(default)]
    pub corrective: bool,
    #[serde(default)]
    pub refreshed: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PropertyChange>,
    /// Why it was skipped or refreshed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it printed and gave, under the name it registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub outputs: Map<String, Value>,
    /// Why other nodes do not get them: they are secrets, or too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs_withheld: Option<String>,
}

impl ResourceEvent {
    /// An event without changes, reasons, messages or outputs.
    pub fn new(
        at: Timestamp,
        type_name: &str,
        title: impl Into<String>,
        status: EventStatus,
    ) -> Self {
        Self {
            type_name: type_name.to_owned(),
            title: title.into(),
            file: None,
            line: None,
            status,
            at,
            duration_seconds: 0.0,
            corrective: false,
            refreshed: false,
            changes: Vec::new(),
            reasons: Vec::new(),
            message: None,
            register: None,
            outputs: Map::new(),
            outputs_withheld: None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventStatus {
    Unchanged,
    Changed,
    /// Noop: it would change.
    Pending,
    Failed,
    Skipped,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PropertyChange {
    pub property: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Of text files: what changed, line by line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// `debug`, `info`, `notice`, `warning`, `error`.
    pub level: String,
    /// The resource that said it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub message: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunFinished {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub ending: RunEnding,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What went wrong, where the ending alone does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RunFailure>,
    pub duration_seconds: f64,
    pub unchanged: u64,
    pub changed: u64,
    pub pending: u64,
    pub failed: u64,
    pub skipped: u64,
    pub corrective: u64,
}

impl RunFinished {
    /// The end of a run in which no resource was looked at.
    pub fn new(at: Timestamp, ending: RunEnding) -> Self {
        Self {
            at,
            ending,
            message: None,
            failure: None,
            duration_seconds: 0.0,
            unchanged: 0,
            changed: 0,
            pending: 0,
            failed: 0,
            skipped: 0,
            corrective: 0,
        }
    }

    pub fn counts(&self) -> EventCounts {
        EventCounts {
            unchanged: self.unchanged,
            changed: self.changed,
            pending: self.pending,
            failed: self.failed,
            skipped: self.skipped,
            corrective: self.corrective,
        }
    }
}

/// How a node run ended. Everything but `succeeded` is a failure of its own kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunEnding {
    Succeeded,
    /// Resources failed.
    Failed,
    /// It could not start: no catalog, a bad one, the method is missing.
    NotStarted,
    /// It waited in the queue for longer than it was allowed to.
    Expired,
    TimedOut,
    Cancelled,
    /// The node is disabled.
    Disabled,
    /// The agent died or the machine went down in the middle; said by the
    /// agent after its restart.
    Interrupted,
}

impl RunEnding {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::NotStarted => "not_started",
            Self::Expired => "expired",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Disabled => "disabled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// What went wrong with the program that a run is left to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunFailure {
    /// The program is not on the node.
    NoProgram,
    /// It is there and did not start, or cannot be asked for its settings.
    DidNotStart,
    /// Another run was at work for as long as this one was allowed to wait.
    Locked,
    /// It ended with an exit code that no report explains.
    ExitCode,
    /// It ended as if all were well, and there is no report of this run.
    NoReport,
    /// The report cannot be read, or is not of this run.
    InvalidReport,
    /// It carried out another catalog than the one it was given.
    OtherCatalog,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Where a node run stands, as far as its report tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportState {
    /// Started, and its node is there.
    Running,
    /// Started and not finished, and its node is not there.
    Lost,
    Finished,
}

/// How many resources came out how, so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct EventCounts {
    pub unchanged: u64,
    pub changed: u64,
    pub pending: u64,
    pub failed: u64,
    pub skipped: u64,
    /// Of the changed and pending: the machine had drifted.
    pub corrective: u64,
}

impl EventCounts {
    pub fn note(&mut self, event: &ResourceEvent) {
        let counter = match event.status {
            EventStatus::Unchanged => &mut self.unchanged,
            EventStatus::Changed => &mut self.changed,
            EventStatus::Pending => &mut self.pending,
            EventStatus::Failed => &mut self.failed,
            EventStatus::Skipped => &mut self.skipped,
        };
        *counter += 1;
        let differs = matches!(event.status, EventStatus::Changed | EventStatus::Pending);
        self.corrective += u64::from(event.corrective && differs);
    }

    pub fn total(&self) -> u64 {
        self.unchanged + self.changed + self.pending + self.failed + self.skipped
    }
}

/// A resource that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailedResource {
    /// `Service[nginx]`.
    pub resource: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One report without its events.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportSummary {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = String)]
    pub run: NodeRunId,
    pub state: ReportState,
    pub started: RunStarted,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<RunFinished>,
    /// So far; when it is finished, the node's own count.
    pub counts: EventCounts,
    /// The first that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailedResource>,
    /// Numbers of events that the agent could not keep.
    #[serde(default)]
    pub omitted: u64,
    /// The number of the next event.
    pub next: u64,
    /// When the first event reached a server, by the server's clock.
    #[schema(value_type = String, format = DateTime)]
    pub first_received: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_received: Timestamp,
}

impl ReportSummary {
    /// Ended in anything but success, or its node is gone.
    pub fn is_failure(&self) -> bool {
        match &self.finished {
            Some(finished) => finished.ending != RunEnding::Succeeded,
            None => self.state == ReportState::Lost,
        }
    }
}

/// Some reports, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportPage {
    pub reports: Vec<ReportSummary>,
    /// Pass it as `after` to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An event with its number: a line of a report's stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NumberedEvent {
    pub number: u64,
    #[serde(flatten)]
    pub event: ReportEvent,
}

/// A line of the stream of everybody's events.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ReportStreamMessage {
    /// The stream is open; everything after this cursor follows.
    Open { cursor: String },
    Events {
        /// Pass it to go on after these events.
        cursor: String,
        #[schema(value_type = String)]
        node: NodeName,
        #[schema(value_type = String)]
        run: NodeRunId,
        events: Vec<NumberedEvent>,
    },
    /// The cursor is older than what is remembered: some events were passed by.
    Gap,
}
