//! The log of a run.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::plan::StepIndex;
use super::review::StaleNode;
use crate::api::{FailedResource, RunEnding};

/// An event in the log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunLogEntry {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Someone other than the requester approved the run.
    Approved { by: String },
    /// The run has begun, and its nodes were checked.
    Begun { unfit: Vec<UnavailableNode> },
    /// It could not begin in time.
    Expired { reason: String },
    /// The plan was no longer valid when the run was about to begin, so nothing was started.
    PlanChanged { nodes: Vec<StaleNode> },
    /// The node's report begins.
    Started { step: StepIndex },
    /// The node's report is complete. Only this decides how it went.
    Ended {
        step: StepIndex,
        ending: RunEnding,
        #[serde(default)]
        changed: u64,
        #[serde(default)]
        failed: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The first resources that failed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failures: Vec<FailedResource>,
        /// The number of changes that undid someone else's.
        #[serde(default, skip_serializing_if = "is_zero")]
        drifted: u64,
    },
    /// The request did not reach the node's queue.
    Refused { step: StepIndex, reason: String },
    /// The node was disabled before it started.
    Disabled { step: StepIndex, reason: String },
    /// The node disconnected.
    Away { step: StepIndex },
    /// The node reconnected.
    Back { step: StepIndex },
    /// Deadlines are checked.
    TimePassed,
    /// A check at a gate passed.
    CheckPassed {
        gate: u32,
        check: u32,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A check at a gate failed, so nothing new starts.
    CheckFailed {
        gate: u32,
        check: u32,
        by: String,
        reason: String,
    },
    /// Nothing new starts. Running nodes finish.
    StopRequested { by: String },
    /// Running nodes are cancelled.
    CancelRequested { by: String },
}

/// A node that cannot run now, with the reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UnavailableNode {
    pub step: StepIndex,
    pub reason: UnavailableReason,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum UnavailableReason {
    Disabled {
        reason: String,
    },
    Lost {
        reason: String,
    },
    Unknown,
    /// It has nothing to apply.
    NoCatalog,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
