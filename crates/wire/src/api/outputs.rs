//! Outputs that states read from other nodes.

use bunraku_model::NodeName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A reference to another node's output: `${ node("db1").token… }`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutputRead {
    /// The name in the state. The node may not exist.
    pub node: String,
    /// The name under which that node registers it.
    pub name: String,
}

/// All outputs of other nodes that a node's released catalog reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeReads {
    #[schema(value_type = String)]
    pub node: NodeName,
    pub reads: Vec<OutputRead>,
}

/// An output of another node, or the reason why there is none.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OtherNodeOutput {
    #[serde(flatten)]
    pub read: OutputRead,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub value: Option<Map<String, Value>>,
    /// The reason why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The time when the other node reported it, by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub given: Option<Timestamp>,
}
