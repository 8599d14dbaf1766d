//! What an operator reviews after data was restored from a backup.

use bunraku_model::{NodeName, Role};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::CertificateEntry;

/// A certificate of this CA that is not in the inventory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UnknownCertificate {
    #[schema(value_type = String)]
    pub name: NodeName,
    #[schema(value_type = String)]
    pub role: Role,
    /// Hexadecimal.
    pub serial: String,
    #[schema(value_type = String, format = DateTime)]
    pub not_before: Timestamp,
    /// When its holder first asked this server.
    #[schema(value_type = String, format = DateTime)]
    pub first_seen: Timestamp,
}

/// The state after a restore.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RestoreReview {
    /// The number of restores so far.
    pub epoch: u64,
    pub is_reviewed: bool,
    /// When the restore was noticed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    pub because: Option<String>,
    pub reviewed_by: Option<String>,
    /// The newest certificate in the inventory: roughly the time of the backup.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub newest_certificate: Option<Timestamp>,
    /// Operators whose certificates are valid. Those who were revoked after the backup are among
    /// them, unless a client or the signer remembered the revocation.
    pub operators: Vec<CertificateEntry>,
    /// Number of nodes with a valid certificate.
    pub nodes: usize,
    /// Revocations without a certificate in the inventory, among them those that came back.
    pub recovered_revocations: usize,
    /// Certificates that were signed after the backup, as far as their holders asked this server.
    pub unknown: Vec<UnknownCertificate>,
}

/// Revocation lists that a client kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OfferedLists {
    /// PEM.
    pub lists: String,
}
