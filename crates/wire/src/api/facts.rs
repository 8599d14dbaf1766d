//! Facts: submissions, replies and differences.

use bunraku_model::{FactSet, FactSetId, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// Confirms that the facts are stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactsReceipt {
    #[schema(value_type = String)]
    pub fact_set: FactSetId,
    /// `true` if anything except volatile facts changed.
    pub changed: bool,
    /// `true` if the same agent had already submitted newer facts. These were ignored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

/// The position of a submission among those of one agent process. Not based on a clock, because
/// clocks can be set back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SubmissionOrder {
    /// Chosen when the agent starts.
    pub session: Uuid,
    /// Increases with every submission.
    pub number: u64,
    /// `true` if the previous submission was acknowledged, so no older one can still arrive.
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
    /// The time when these facts first arrived.
    #[schema(value_type = String, format = DateTime)]
    pub changed: Timestamp,
    /// The time of the last submission. For unchanged facts, accurate to the hour.
    #[schema(value_type = String, format = DateTime)]
    pub received: Timestamp,
    #[schema(value_type = Object)]
    pub facts: FactSet,
}

/// A stored fact set of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactSetEntry {
    #[schema(value_type = String)]
    pub fact_set: FactSetId,
    /// The time when these facts first arrived.
    #[schema(value_type = String, format = DateTime)]
    pub changed: Timestamp,
    /// The time when newer facts replaced them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub replaced: Option<Timestamp>,
}

/// The differences between two fact sets of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactsDifference {
    #[schema(value_type = String)]
    pub node: NodeName,
    pub from: FactSetEntry,
    pub to: FactSetEntry,
    pub changes: Vec<FactChange>,
}

/// A changed fact.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactChange {
    /// The dotted path, as in queries.
    pub path: String,
    /// Absent if the fact is new.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// Absent if the fact was removed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

/// Distinguishes an explicit `null` from an absent field.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
