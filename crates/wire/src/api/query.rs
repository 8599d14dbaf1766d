//! Queries and their results.

use bunraku_model::NodeName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A query in the query language.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    pub query: String,
}

/// The result of a query.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueryReply {
    /// The columns, in the requested order.
    pub columns: Vec<String>,
    /// One object per row, with all columns.
    #[schema(value_type = Vec<Object>)]
    pub rows: Vec<Map<String, Value>>,
    /// Warnings about probable mistakes in the query.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The names of the nodes that match a query.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueryNodes {
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
}
