//! Certificates, requests for them, and join tokens.

use std::collections::BTreeSet;

use bunraku_model::access::GroupName;
use bunraku_model::{NodeName, Role};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::operator_proof::OperatorProof;

/// A certificate that this authority signed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CertificateEntry {
    /// Hexadecimal.
    pub serial: String,
    #[schema(value_type = String)]
    pub name: NodeName,
    #[schema(value_type = String)]
    pub role: Role,
    /// The groups of an operator.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub groups: BTreeSet<GroupName>,
    pub fingerprint: String,
    #[schema(value_type = String, format = DateTime)]
    pub not_before: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub not_after: Timestamp,
    /// The signer: an operator's name, a token, or `renewal`.
    pub signed_by: String,
    pub state: CertificateState,
}

/// The state of a certificate.
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

/// A pending certificate request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PendingRequest {
    #[schema(value_type = String)]
    pub name: NodeName,
    /// The fingerprint of the request, which the node also prints.
    pub fingerprint: String,
    #[schema(value_type = String, format = DateTime)]
    pub received: Timestamp,
    /// The address that sent it.
    pub from: String,
}

/// A request to sign a pending certificate request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SignRequest {
    /// The fingerprint that the node printed. The request with this fingerprint is signed.
    pub fingerprint: String,
}

/// A request to revoke all valid certificates of a name, or one of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevokeRequest {
    pub reason: String,
    /// Only the certificate with this serial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// A request of a certificate's holder to renew it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RenewRequest {
    /// PKCS#10, PEM. Its common name must be the holder's.
    pub certificate_request: String,
    /// The holder's signature, if the holder is an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<OperatorProof>,
}

/// An operator's request for a certificate of any role.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IssueRequest {
    /// PKCS#10, PEM.
    pub certificate_request: String,
    #[schema(value_type = String)]
    pub role: Role,
    /// The names and addresses of a server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
    /// The groups of an operator.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub groups: BTreeSet<GroupName>,
    /// The operator's signature. The signer requires it for operators, and for servers that it
    /// does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<OperatorProof>,
}

/// A signed certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IssuedCertificate {
    /// PEM.
    pub certificate: String,
    /// The CA chain, PEM.
    pub ca: String,
}

/// A request for a join token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenRequest {
    pub ttl_seconds: u64,
    /// The only node that may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeName>,
}

/// A new token. The token itself is shown only here.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    pub token: String,
    #[serde(flatten)]
    pub entry: TokenEntry,
    /// The CA fingerprint that the node pins.
    pub ca_fingerprint: String,
}

/// A token that can still be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenEntry {
    /// Identifies the token without revealing it.
    pub id: String,
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeName>,
    pub created_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
}
