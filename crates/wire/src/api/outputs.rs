//! Outputs that states of one node read of another.

use bunraku_model::NodeName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// `${ node("db1").token… }`: what is read, of whom.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutputRead {
    /// As the state names it; there may be no such node.
    pub node: String,
    /// The name under which that node registers it.
    pub name: String,
}

/// Everything that a node's released catalog reads of other nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeReads {
    #[schema(value_type = String)]
    pub node: NodeName,
    pub reads: Vec<OutputRead>,
}

/// An output of another node, or why there is none.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OtherNodeOutput {
    #[serde(flatten)]
    pub read: OutputRead,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub value: Option<Map<String, Value>>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// When the other node gave it, by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub given: Option<Timestamp>,
}
