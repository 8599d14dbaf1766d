//! Facts on their way in and out.

use bunraku_model::{FactSet, FactSetId, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The server has the facts, durably.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactsReceipt {
    #[schema(value_type = String)]
    pub fact_set: FactSetId,
    /// Anything but volatile facts is new.
    pub changed: bool,
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
    /// When the node submitted facts last.
    #[schema(value_type = String, format = DateTime)]
    pub received: Timestamp,
    #[schema(value_type = Object)]
    pub facts: FactSet,
}
