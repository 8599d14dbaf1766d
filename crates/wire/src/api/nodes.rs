//! Nodes and their status.

use bunraku_model::{
    Activity, Administration, EnvironmentName, FactSetId, NodeName, NodeStatus, StatusWord,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
