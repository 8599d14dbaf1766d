//! Join requests of machines without a certificate.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node's request for its certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JoinRequest {
    /// PKCS#10, PEM. Its common name is the node's name.
    pub certificate_request: String,
    /// A one-time token. If valid, the certificate is signed at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How long the server may delay the answer while the request waits for an operator.
    #[serde(default)]
    pub wait_seconds: u64,
}

/// The answer to a join request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JoinReply {
    Signed {
        /// PEM.
        certificate: String,
        /// The CA chain, PEM.
        ca: String,
    },
    /// An operator must sign it. Ask again with the same request.
    Waiting {
        /// The fingerprint that the operator compares.
        fingerprint: String,
    },
}
