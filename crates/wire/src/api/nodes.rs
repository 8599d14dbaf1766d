//! Nodes and where they stand.

use bunraku_model::{
    Activity, Administration, EnvironmentName, FactSetId, NodeName, NodeStatus, StatusWord,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One node, as lists and `node show` give it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeSummary {
    #[schema(value_type = String)]
    pub name: NodeName,
    #[serde(default = "bunraku_model::default_environment")]
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    /// The one word that says most.
    #[schema(value_type = String)]
    pub word: StatusWord,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = Object)]
    pub status: NodeStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub fact_set: Option<FactSetId>,
    /// When facts were submitted last, changed or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub facts_received: Option<Timestamp>,
    /// Commands that wait for the node.
    pub pending_commands: usize,
    /// Of the agent that connected last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
}

/// Take a node out of service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DisableRequest {
    /// Shown wherever the node is.
    pub reason: String,
}

/// What the agent does now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActivityReport {
    #[schema(value_type = Object)]
    pub activity: Activity,
}

/// Whether the node may run, as its agent should know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActivityReceipt {
    #[schema(value_type = Object)]
    pub administration: Administration,
}
