//! Nodes and their status.

use bunraku_model::{
    Activity, Administration, EnvironmentName, FactSetId, NodeName, NodeRunId, NodeStatus,
    ReleaseNumber, StatusWord,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{EventCounts, FailedResource, RunEnding, RunMode};

/// A node, as shown in lists and by `node show`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeSummary {
    #[schema(value_type = String)]
    pub name: NodeName,
    #[serde(default = "bunraku_model::default_environment")]
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    /// The status in one word.
    #[schema(value_type = String)]
    pub word: StatusWord,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = Object)]
    pub status: NodeStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub fact_set: Option<FactSetId>,
    /// The time of the last submission of facts, changed or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub facts_received: Option<Timestamp>,
    /// The number of pending commands.
    pub pending_commands: usize,
    /// The version of the agent that connected last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The newest run that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
}

impl NodeSummary {
    /// Returns `true` if the newest run did not succeed.
    pub fn has_failed(&self) -> bool {
        self.last_run.as_ref().is_some_and(LastRun::is_failure)
    }

    /// Returns `true` if the newest run corrected drift, or would have.
    pub fn has_drifted(&self) -> bool {
        self.last_run
            .as_ref()
            .is_some_and(|last| last.counts.corrective > 0)
    }
}

/// The newest run of a node that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LastRun {
    #[schema(value_type = String)]
    pub run: NodeRunId,
    pub ending: RunEnding,
    pub mode: RunMode,
    /// The time when its report was complete, by the server's clock.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub counts: EventCounts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub release: Option<ReleaseNumber>,
    /// The first resource that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailedResource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl LastRun {
    pub fn is_failure(&self) -> bool {
        self.ending != RunEnding::Succeeded
    }
}

/// A request to disable a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DisableRequest {
    /// The reason, shown wherever the node is shown.
    pub reason: String,
}

/// The current activity of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActivityReport {
    #[schema(value_type = Object)]
    pub activity: Activity,
}

/// The node's administrative state, for its agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActivityReceipt {
    #[schema(value_type = Object)]
    pub administration: Administration,
}
