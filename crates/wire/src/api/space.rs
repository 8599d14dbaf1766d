//! The space that the store uses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The space that the store uses, as last observed by the server that answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SpaceStatus {
    /// `normal`, `low` or `full`. A full store accepts deletions and coordination only.
    pub level: String,
    /// `true` if etcd raised its NOSPACE alarm: it refuses every write except for deletions.
    pub alarm: bool,
    /// The datastores that answered.
    pub members: Vec<MemberSpaceStatus>,
}

impl SpaceStatus {
    pub fn is_full(&self) -> bool {
        self.level == "full"
    }
}

/// The space of one datastore.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberSpaceStatus {
    /// Its client URL; `local` for the embedded store.
    pub datastore: String,
    /// The bytes that count towards the quota, including unused ones.
    pub size_bytes: u64,
    /// The bytes that hold data or history.
    pub used_bytes: u64,
    /// Absent if the datastore does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// The bytes that data may use: the quota without the reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
}
