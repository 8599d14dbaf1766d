//! Queries and their answers.

use bunraku_model::NodeName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A question, in the query language.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    pub query: String,
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueryReply {
    /// In the order that was asked for.
    pub columns: Vec<String>,
    /// One object per row, with all columns.
    #[schema(value_type = Vec<Object>)]
    pub rows: Vec<Map<String, Value>>,
    /// What is probably not meant as it was written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The nodes that a query names, by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueryNodes {
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
}
