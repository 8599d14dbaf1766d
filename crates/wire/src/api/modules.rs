//! Published extension modules and trusted keys.
//!
//! A package is sent unchanged (`POST /v1/modules`, bytes). Names, versions and hashes are plain
//! text here; they are validated where they are used.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A published version of a module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PublishedModule {
    pub name: String,
    pub version: String,
    /// The hash of the whole package: its content address, which catalogs pin.
    pub sha256: String,
    pub size: u64,
    /// The resource types that it adds.
    pub types: Vec<String>,
    /// The fingerprint of the signing key.
    pub signed_by: String,
    /// The owner, from the trusted key's comment.
    #[serde(default)]
    pub signer: String,
    pub published_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub published: Timestamp,
    /// The reason why it would be refused now: its key has been revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A key that servers trust.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TrustedModuleKey {
    pub fingerprint: String,
    /// The content of its file: `bunraku-module-key BASE64 COMMENT`.
    pub key: String,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// A revoked key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevokedModuleKey {
    pub fingerprint: String,
    #[serde(default)]
    pub reason: String,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// The keys that servers trust or have revoked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ModuleKeys {
    #[serde(default)]
    pub trusted: Vec<TrustedModuleKey>,
    /// Sent to every node and added to the node's own list.
    #[serde(default)]
    pub revoked: Vec<RevokedModuleKey>,
}

/// A request to trust a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TrustModuleKey {
    pub key: String,
}

/// A request to revoke a key permanently.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevokeModuleKey {
    pub fingerprint: String,
    #[serde(default)]
    pub reason: String,
}

/// An event in the history of modules and keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ModuleEvent {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub by: String,
    /// `published`, `removed`, `trusted`, `revoked`, `refused`.
    pub what: String,
    /// The module and its version, or the key.
    pub subject: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}
