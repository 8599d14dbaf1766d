//! How a machine without a certificate gets one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node's request for its certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JoinRequest {
    /// PKCS#10, PEM. Its common name is the node's name.
    pub certificate_request: String,
    /// With a valid one-time token the certificate is signed at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How long the server may hold the answer back while the request waits for an operator.
    #[serde(default)]
    pub wait_seconds: u64,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JoinReply {
    Signed {
        /// PEM.
        certificate: String,
        /// PEM, the whole chain above it.
        ca: String,
    },
    /// An operator has to sign it. Ask again with the same request.
    Waiting {
        /// What the operator compares.
        fingerprint: String,
    },
}
