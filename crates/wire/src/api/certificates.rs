//! Certificates, requests for them, and join tokens.

use bunraku_model::{NodeName, Role};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A certificate that this authority signed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CertificateEntry {
    /// Hexadecimal.
    pub serial: String,
    #[schema(value_type = String)]
    pub name: NodeName,
    #[schema(value_type = String)]
    pub role: Role,
    pub fingerprint: String,
    #[schema(value_type = String, format = DateTime)]
    pub not_before: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub not_after: Timestamp,
    /// Who let it in: an operator's name, a token, a renewal.
    pub signed_by: String,
    pub state: CertificateState,
}

/// Does a certificate count?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum CertificateState {
    Valid,
    Expired,
    Revoked {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
        reason: String,
        by: String,
    },
}

/// A request that waits for an operator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PendingRequest {
    #[schema(value_type = String)]
    pub name: NodeName,
    /// Of the request: what the node prints as well.
    pub fingerprint: String,
    #[schema(value_type = String, format = DateTime)]
    pub received: Timestamp,
    /// The address it came from.
    pub from: String,
}

/// Sign a waiting request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SignRequest {
    /// Refuse if the request is not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Revoke every valid certificate of a name, or one of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevokeRequest {
    pub reason: String,
    /// Only the certificate with this serial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// The holder of a valid certificate asks for its next one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RenewRequest {
    /// PKCS#10, PEM. Its common name must be the holder's.
    pub certificate_request: String,
}

/// An operator asks for a certificate of any role.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IssueRequest {
    /// PKCS#10, PEM.
    pub certificate_request: String,
    #[schema(value_type = String)]
    pub role: Role,
    /// Names and addresses that a server answers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
}

/// A signed certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IssuedCertificate {
    /// PEM.
    pub certificate: String,
    /// PEM, the whole chain above it.
    pub ca: String,
}

/// Make a join token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenRequest {
    pub ttl_seconds: u64,
    /// Good only for this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeName>,
}

/// The only time that the token itself is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    pub token: String,
    #[serde(flatten)]
    pub entry: TokenEntry,
    /// What the node pins.
    pub ca_fingerprint: String,
}

/// A token that can still be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenEntry {
    /// Names the token without giving it away.
    pub id: String,
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeName>,
    pub created_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
}
