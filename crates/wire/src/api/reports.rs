//! Reports: the events of one node run, in order.
//!
//! An agent numbers the events of a run from 0 and sends them in batches to
//! `POST /v1/nodes/{node}/reports/{run}/events`. The receipt contains the next expected
//! number. Repeated events are dropped; a gap is refused with the missing number. The first
//! event is `started`, the last is `finished`. A report without `finished` belongs to an
//! unfinished run.
//!
//! A lost event keeps its number: an `omitted` event covers a range of numbers, so a loss is
//! visible and never looks like a gap.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeName, NodeRunId, ReleaseNumber};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Cause, RunMode};

/// Consecutive events of one run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportBatch {
    /// The number of the first event.
    pub first: u64,
    pub events: Vec<ReportEvent>,
}

/// Confirms that all events before `next` are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportReceipt {
    pub next: u64,
    /// `true` if the last event has arrived.
    #[serde(default)]
    pub finished: bool,
}

/// An event of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ReportEvent {
    Started(RunStarted),
    /// A resource was processed.
    Resource(Box<ResourceEvent>),
    Log(LogLine),
    /// Events that the agent had to drop.
    Omitted(OmittedEvents),
    Finished(RunFinished),
}

impl ReportEvent {
    /// Returns how many numbers the event covers.
    pub fn width(&self) -> u64 {
        match self {
            Self::Omitted(omitted) => omitted.count,
            _ => 1,
        }
    }
}

/// Replaces dropped events, with the reason.
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
    /// The reason why the run changes nothing. Only in noop runs, and not from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noop_reason: Option<NoopReason>,
    pub causes: Vec<Cause>,
    /// The number of further causes that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_causes: u64,
    /// Other requests that were merged into this run.
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
    /// `true` if no server could be reached and the catalog came from the agent's cache.
    #[serde(default)]
    pub from_cache: bool,
    /// The number of resources to process.
    #[serde(default)]
    pub resources: u64,
    /// The run method: `engine`, `puppet` or `command`.
    pub method: String,
}

/// The reason why a run is a noop run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoopReason {
    /// The request asked for it.
    Request,
    /// The agent is configured to change nothing.
    Agent,
    /// None of the node's windows was open.
    Window,
    /// The catalog was released for noop only.
    Release,
}

impl NoopReason {
    /// Returns the reason in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Request => "requested",
            Self::Agent => "the agent is configured for noop",
            Self::Window => "outside the node's windows",
            Self::Release => "released for noop only",
        }
    }
}

impl RunStarted {
    /// Creates the start event of a run without causes and without a catalog.
    pub fn new(at: Timestamp, mode: RunMode, method: &str) -> Self {
        Self {
            at,
            mode,
            noop_reason: None,
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
    /// `true` if the machine had drifted from the state that the last run left.
    #[serde(default)]
    pub corrective: bool,
    #[serde(default)]
    pub refreshed: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PropertyChange>,
    /// The reasons for skipping or refreshing it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The name under which its outputs are registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub outputs: Map<String, Value>,
    /// The reason why other nodes do not receive the outputs: they are secret or too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs_withheld: Option<String>,
}

impl ResourceEvent {
    /// Creates an event without changes, reasons, messages or outputs.
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

impl ResourceEvent {
    /// Returns `true` if the resource was as it should be, and there is nothing else to say about
    /// it. Agents count such resources and do not send them, unless they are asked to.
    pub fn is_uneventful(&self) -> bool {
        self.status == EventStatus::Unchanged
            && !self.corrective
            && !self.refreshed
            && self.changes.is_empty()
            && self.reasons.is_empty()
            && self.message.is_none()
            && self.register.is_none()
            && self.outputs.is_empty()
            && self.outputs_withheld.is_none()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventStatus {
    Unchanged,
    Changed,
    /// In a noop run: it would change.
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
    /// For text files: a line-by-line diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// `debug`, `info`, `notice`, `warning`, `error`.
    pub level: String,
    /// The resource that logged the message, if any.
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
    /// The kind of failure, if the ending alone does not explain it.
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
    /// Creates the end event of a run that processed no resource.
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

/// The ending of a node run. Every ending except `succeeded` is a kind of failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunEnding {
    Succeeded,
    /// Resources failed.
    Failed,
    /// The run could not start: no catalog, an invalid catalog, or a missing run method.
    NotStarted,
    /// The run waited in the queue longer than allowed.
    Expired,
    TimedOut,
    Cancelled,
    /// The node is disabled.
    Disabled,
    /// The agent or the machine stopped during the run. The agent reports this after its restart.
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

/// A failure of the external program that performs a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunFailure {
    /// The program is not installed on the node.
    NoProgram,
    /// The program did not start, or its settings could not be read.
    DidNotStart,
    /// Another run held the lock for as long as this run was allowed to wait.
    Locked,
    /// The program failed with an exit code, and no report explains it.
    ExitCode,
    /// The program succeeded but wrote no report of this run.
    NoReport,
    /// The report cannot be read, or belongs to another run.
    InvalidReport,
    /// The program applied a different catalog than the one it was given.
    OtherCatalog,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The state of a node run, according to its report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportState {
    /// The run has started, and its node is connected.
    Running,
    /// The run has started but not finished, and its node is not connected.
    Lost,
    Finished,
}

/// The number of resources by outcome, so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct EventCounts {
    pub unchanged: u64,
    pub changed: u64,
    pub pending: u64,
    pub failed: u64,
    pub skipped: u64,
    /// Changed and pending resources that had drifted.
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
    /// The counts so far. For a finished run, the node's own counts.
    pub counts: EventCounts,
    /// The first resources that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailedResource>,
    /// The number of events that the agent had to drop.
    #[serde(default)]
    pub omitted: u64,
    /// The number of the next event.
    pub next: u64,
    /// The time when the first event reached a server, by the server's clock.
    #[schema(value_type = String, format = DateTime)]
    pub first_received: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_received: Timestamp,
    /// Set if the report is older than the events that are kept: they were deleted up to this
    /// time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub events_deleted_before: Option<Timestamp>,
    /// Later runs of the node's schedule with the same result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<ReportRepeats>,
}

/// Runs that a report stands for besides its own: they followed it without another run in between,
/// applied the same catalog in the same mode, and changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportRepeats {
    pub count: u64,
    /// The newest of these runs.
    #[schema(value_type = String)]
    pub run: NodeRunId,
    /// The time when the newest of these runs was reported, by the server's clock.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

impl ReportSummary {
    /// Returns `true` if the run did not succeed or its node was lost.
    pub fn is_failure(&self) -> bool {
        match &self.finished {
            Some(finished) => finished.ending != RunEnding::Succeeded,
            None => self.state == ReportState::Lost,
        }
    }
}

/// A page of reports, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportPage {
    pub reports: Vec<ReportSummary>,
    /// The cursor for the next page; pass it as `after`.
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

/// A line of the stream of all nodes' events.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ReportStreamMessage {
    /// The stream is open. All events after this cursor follow.
    Open { cursor: String },
    Events {
        /// The cursor after these events.
        cursor: String,
        #[schema(value_type = String)]
        node: NodeName,
        #[schema(value_type = String)]
        run: NodeRunId,
        events: Vec<NumberedEvent>,
    },
    /// The cursor is too old: some events were skipped.
    Gap,
}
