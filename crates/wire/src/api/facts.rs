//! Facts on their way in and out.

use bunraku_model::{FactSet, FactSetId, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// The server has the facts, durably.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactsReceipt {
    #[schema(value_type = String)]
    pub fact_set: FactSetId,
    /// Anything but volatile facts is new.
    pub changed: bool,
    /// The same agent has said something newer already: these were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

/// Where a submission stands among those of one agent process. Without a
/// clock, because clocks are set back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SubmissionOrder {
    /// Made when the agent starts.
    pub session: Uuid,
    /// Counts up.
    pub number: u64,
    /// The one before this was acknowledged: nothing of the session is on its
    /// way that this must be told apart from.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
}

/// The facts of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactsReply {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = String)]
    pub fact_set: FactSetId,
    /// When these facts came in for the first time.
    #[schema(value_type = String, format = DateTime)]
    pub changed: Timestamp,
    /// When the node submitted facts last; of facts that stay the same, to the hour.
    #[schema(value_type = String, format = DateTime)]
    pub received: Timestamp,
    #[schema(value_type = Object)]
    pub facts: FactSet,
}

/// One fact set of a node that can still be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactSetEntry {
    #[schema(value_type = String)]
    pub fact_set: FactSetId,
    /// When these facts came in for the first time.
    #[schema(value_type = String, format = DateTime)]
    pub changed: Timestamp,
    /// When others took their place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub replaced: Option<Timestamp>,
}

/// What changed between two fact sets of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactsDifference {
    #[schema(value_type = String)]
    pub node: NodeName,
    pub from: FactSetEntry,
    pub to: FactSetEntry,
    pub changes: Vec<FactChange>,
}

/// One fact that is not what it was.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactChange {
    /// Dotted, as queries take it.
    pub path: String,
    /// Not there: the fact is new.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// Not there: the fact is gone.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

/// Keeps a `null` that is written apart from a member that is not there.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
