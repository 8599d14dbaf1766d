//! The CA that everybody trusts, and its replacement by another one.

use bunraku_model::NodeName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The CAs that the caller should trust, and what it should do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuthorityView {
    /// All trusted CAs, PEM.
    pub ca: String,
    /// The caller's certificate comes from a CA that is being replaced: renew it now.
    pub renew: bool,
    /// Identifies the current revocation list. Empty while there is none.
    pub revocation_list: String,
    /// The number of restores so far. After a restore, the server may have forgotten
    /// revocations: offer it the list that you have.
    #[serde(default)]
    pub epoch: u64,
}

/// A request to replace the CA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RotateRequest {
    /// How long both CAs are trusted.
    pub period_seconds: u64,
}

/// A request to end a rotation now.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FinishRotationRequest {
    /// End it although nodes would lose their connection.
    #[serde(default)]
    pub force: bool,
}

/// The direction of a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RotationPhase {
    /// Nodes get certificates of the new CA.
    Renewing,
    /// The rotation was aborted: nodes get certificates of the former CA again.
    Aborting,
    /// Only the new CA is trusted.
    Finished,
}

/// The state of a rotation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RotationStatus {
    pub phase: RotationPhase,
    /// Fingerprint of the CA that is replaced.
    pub former: String,
    /// Fingerprint of the new CA.
    pub new: String,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    pub started_by: String,
    /// The rotation finishes automatically at this time.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// Number of nodes with a certificate of the wanted CA, in use.
    pub renewed: usize,
    /// Nodes that still use a certificate of the other CA.
    #[schema(value_type = Vec<String>)]
    pub waiting: Vec<NodeName>,
    /// Operators that still use a certificate of the other CA.
    #[schema(value_type = Vec<String>)]
    pub operators_waiting: Vec<NodeName>,
    /// Servers that do not have the new CA yet.
    pub servers_waiting: Vec<String>,
}
