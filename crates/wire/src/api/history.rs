//! Where history is, and whether it answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The history of a fleet: reports and their events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryStatus {
    /// Where new reports go: `store`, `embedded` or `postgresql`.
    pub place: String,
    /// Where reports are moved from, while a move goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_from: Option<String>,
    /// The number of reports that the newest move has moved.
    #[serde(default)]
    pub moved: u64,
    /// Why history does not answer. Absent while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage_seconds: Option<u64>,
}

/// A request to move history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MoveHistoryRequest {
    pub to: HistoryTarget,
}

/// A place to which history can be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HistoryTarget {
    /// The place that needs no configuration.
    Default,
    Postgresql,
}
