//! Extension modules that a server has, and whose signatures count.
//!
//! A package is sent as it is (`POST /v1/modules`, bytes). Names, versions and
//! hashes are plain text here: what they mean is checked where they are used.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One version of a module that was published.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PublishedModule {
    pub name: String,
    pub version: String,
    /// Of the whole package: its content address, and what a catalog pins.
    pub sha256: String,
    pub size: u64,
    /// The resource types that it adds.
    pub types: Vec<String>,
    /// The fingerprint of the key.
    pub signed_by: String,
    /// What the trusted key calls its owner.
    #[serde(default)]
    pub signer: String,
    pub published_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub published: Timestamp,
    /// Why it would be refused now: its key was revoked since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A key whose signatures count on servers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TrustedModuleKey {
    pub fingerprint: String,
    /// As its file has it: `bunraku-module-key BASE64 COMMENT`.
    pub key: String,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// A key whose signatures count nowhere any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevokedModuleKey {
    pub fingerprint: String,
    #[serde(default)]
    pub reason: String,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// Whose signatures count on servers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ModuleKeys {
    #[serde(default)]
    pub trusted: Vec<TrustedModuleKey>,
    /// Handed out to every node, where it adds to the node's own list.
    #[serde(default)]
    pub revoked: Vec<RevokedModuleKey>,
}

/// A request to trust a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TrustModuleKey {
    pub key: String,
}

/// A request to revoke a key, for ever.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevokeModuleKey {
    pub fingerprint: String,
    #[serde(default)]
    pub reason: String,
}

/// Who did what to modules and keys.
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
