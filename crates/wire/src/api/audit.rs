//! The audit log: who changed what, from where, why, and with which outcome.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// One line of the audit log: a change, or a refused request.
///
/// A line never changes. The next line contains its SHA-256 as `previous`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// The place in the log, counted from 1. Absent for the moment until the record is linked to
    /// the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The SHA-256 of the line before, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    #[serde(flatten)]
    pub entry: AuditEntry,
}

/// The content of a record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Identifies the action. Only a record whose outcome became known late repeats it.
    #[schema(value_type = String)]
    pub id: Uuid,
    /// The time when the action began.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The name in the caller's certificate, the server that acts for itself, or `anonymous`.
    pub who: String,
    /// `operator`, `node`, `server` or `anonymous`.
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<AuditCertificate>,
    /// The address of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub source: AuditSource,
    /// The program of the caller, as it named itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The action, such as `create-release`.
    pub action: String,
    /// The object of the action, such as `environment/production`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Parts of the request. Never a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object)]
    pub details: BTreeMap<String, Value>,
    /// The reason that the caller gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub outcome: AuditOutcome,
    /// The HTTP status of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The explanation of a refusal or failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The number of like refusals of this caller that the record stands for, if more than one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
    /// The id of the request (`X-Request-Id`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The server that did it.
    pub server: String,
    /// Only in records about the log itself: where it begins after old records were deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<AuditCheckpoint>,
}

fn one() -> u64 {
    1
}

fn is_one(count: &u64) -> bool {
    *count == 1
}

/// The certificate that a caller used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditCertificate {
    pub serial: String,
    pub fingerprint: String,
}

/// The kind of origin of a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditSource {
    /// A request to the API: the CLI, an agent, or another program.
    Api,
    /// A delivery of a webhook.
    Webhook,
    /// A reactor that matched an event.
    Reactor,
    /// A server, without a request.
    Server,
}

impl AuditSource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Webhook => "webhook",
            Self::Reactor => "reactor",
            Self::Server => "server",
        }
    }
}

/// How an action ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    Succeeded,
    /// The server did not accept it. Nothing changed.
    Refused,
    /// It failed. Parts of it may have happened.
    Failed,
    /// The server stopped, or the caller left, before the outcome was known.
    Unknown,
}

impl AuditOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// Where the log begins after old records were deleted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditCheckpoint {
    /// The number of the first record that was kept.
    pub first: u64,
    /// The SHA-256 of the last record that was deleted.
    pub previous: String,
}

/// Some records, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    pub records: Vec<AuditRecord>,
    /// Pass this as `before` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// The newest record: what an export has to end with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    /// The number of the newest record; 0 if there is none.
    pub number: u64,
    /// The SHA-256 of its line.
    pub hash: String,
    /// The number of the oldest record.
    pub first: u64,
}
