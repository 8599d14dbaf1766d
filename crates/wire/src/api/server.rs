//! Information about a server.

use bunraku_model::ServerId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    #[schema(value_type = String)]
    pub id: ServerId,
    pub version: String,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    /// `embedded` or `etcd`.
    pub store: String,
    pub connected_agents: usize,
    pub ca_fingerprint: String,
}
