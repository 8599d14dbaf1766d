//! The log of a run: what happened to it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::plan::StepIndex;

/// An event in the log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Its turn has come and the nodes were looked at.
    Begun { unfit: Vec<Unfit> },
    /// It could not begin in time.
    Expired { reason: String },
    /// The node's report begins.
    Started { step: StepIndex },
    /// The node's report is complete. Only this decides how it went.
    Ended {
        step: StepIndex,
        ending: Ending,
        #[serde(default)]
        changed: u64,
        #[serde(default)]
        failed: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The request never got to the node's queue.
    Refused { step: StepIndex, reason: String },
    /// The node was disabled before it started.
    Disabled { step: StepIndex, reason: String },
    /// The node's connection is gone.
    Away { step: StepIndex },
    /// It is back.
    Back { step: StepIndex },
    /// Deadlines are looked at.
    TimePassed,
    /// Nothing new starts; what runs, ends.
    StopRequested { by: String },
    /// What runs is ended.
    CancelRequested { by: String },
}

/// A node that cannot run now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Unfit {
    pub step: StepIndex,
    pub reason: UnfitReason,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum UnfitReason {
    Disabled { reason: String },
    Lost { reason: String },
    Unknown,
}

/// How the report says it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Succeeded,
    Failed,
    NotStarted,
    Expired,
    TimedOut,
    Cancelled,
    Disabled,
    Interrupted,
}
