//! Information about a server.

use bunraku_model::{RunId, ServerId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{HistoryStatus, SpaceStatus};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    #[schema(value_type = String)]
    pub id: ServerId,
    /// The name in the server's certificate. Absent in answers of older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub version: String,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    /// The server's clock. Absent in answers of older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub now: Option<Timestamp>,
    /// `embedded` or `etcd`.
    pub store: String,
    pub connected_agents: usize,
    /// The ordered runs that this server leads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub leads: Vec<RunId>,
    pub ca_fingerprint: String,
    /// The space that the store uses. For operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceStatus>,
    /// Why content in S3 cannot be used at the moment. For operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3_problem: Option<String>,
    /// What to add before more nodes join. Absent while there is plenty of room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<FleetCapacity>,
    /// Where history is, and whether it answers. For operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryStatus>,
}

/// The number of nodes that the present engines carry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FleetCapacity {
    pub nodes: usize,
    /// The number of nodes that they carry.
    pub carries: usize,
    /// The engines to add, such as `PostgreSQL for history`.
    pub add: Vec<String>,
}

impl FleetCapacity {
    /// Returns whether there are more nodes than the engines carry.
    pub fn is_exceeded(&self) -> bool {
        self.nodes > self.carries
    }

    /// Describes it in one sentence.
    pub fn sentence(&self) -> String {
        format!(
            "{} of the {} nodes that this cluster carries without {}",
            self.nodes,
            self.carries,
            self.add.join(" and ")
        )
    }
}
