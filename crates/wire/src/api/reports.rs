//! Reports: the events of one node run, in their order.
//!
//! An agent numbers the events of a run from 0 and sends them in batches to
//! `POST /v1/nodes/{node}/reports/{run}/events`. The receipt says which
//! number comes next: what is sent again is dropped, a gap is refused with
//! the number that is missing. The first event is `started`, the last one
//! `finished`; a report without it is an unfinished run.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeRunId, ReleaseNumber};
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
}

/// One thing that happened in a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ReportEvent {
    Started(RunStarted),
    /// A resource is done with.
    Resource(Box<ResourceEvent>),
    Log(LogLine),
    Finished(RunFinished),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunStarted {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub mode: RunMode,
    pub causes: Vec<Cause>,
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
    pub duration_seconds: f64,
    pub unchanged: u64,
    pub changed: u64,
    pub pending: u64,
    pub failed: u64,
    pub skipped: u64,
    pub corrective: u64,
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
