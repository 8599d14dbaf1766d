//! Locks shared by nodes and operators, with leases and fencing tokens.

use bunraku_model::{LockName, NodeMatcher, NodeName, TriggerName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request to acquire a lock or to queue for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AcquireLock {
    /// Distinguishes holders with the same certificate. A repeated request with the same session
    /// renews the lock and returns the same token.
    pub session: String,
    /// The lock or the place in the queue expires after this time without a renewal.
    pub lease_seconds: u64,
    /// How long the server may delay the answer while others hold the lock.
    #[serde(default)]
    pub wait_seconds: u64,
    /// `true` to acquire the lock at once or not at all, without queueing.
    #[serde(default)]
    pub only_now: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of holders allowed at once, for a lock that is not yet used or defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
}

/// The answer to a request for a lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LockReply {
    Held {
        /// A fencing token. It increases with every new holder. Pass it to the resource that the
        /// lock protects.
        token: u64,
        /// `true` if this request acquired the lock.
        taken: bool,
    },
    /// Queued. Ask again with the same session before the lease expires.
    Waiting { ahead: usize, holders: Vec<Holder> },
    /// Others hold it, and the caller was not queued.
    Taken { holders: Vec<Holder> },
}

/// A request to renew or release a lock, with its token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LockToken {
    pub token: u64,
}

/// A request to leave the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaveLine {
    pub session: String,
}

/// An operator's request to take a lock from its holder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BreakLock {
    pub token: u64,
    pub reason: String,
}

/// The definition of a lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DefineLock {
    pub slots: u32,
    /// The trigger that is fired when the holders change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub on_change: Option<TriggerName>,
    /// The hosts of that trigger. Default: the old and new holders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub hosts: Vec<NodeName>,
    /// The nodes that may hold it; empty means none. Operators always may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub may_hold: Vec<NodeMatcher>,
    /// The nodes that may see its holders, besides those that may hold it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub may_see: Vec<NodeMatcher>,
}

/// A request to let nodes hold or see a lock.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PermitLock {
    /// These nodes may hold it.
    #[schema(value_type = Vec<String>)]
    pub may_hold: Vec<NodeMatcher>,
    /// These nodes may see its holders.
    #[schema(value_type = Vec<String>)]
    pub may_see: Vec<NodeMatcher>,
    /// The number of slots, for a lock that is not defined yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// `true` to remove the permissions that this request does not contain.
    pub replace: bool,
}

/// A holder, or someone in the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    /// The name in the certificate.
    pub owner: String,
    pub session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// 0 for those in the queue.
    pub token: u64,
}

/// A lock with its holders and queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LockStatus {
    #[schema(value_type = String)]
    pub name: LockName,
    pub slots: u32,
    pub holders: Vec<Holder>,
    pub waiters: Vec<Holder>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub on_change: Option<TriggerName>,
    /// The nodes that may hold it. Shown to operators only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub may_hold: Vec<NodeMatcher>,
    /// The nodes that may see its holders. Shown to operators only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub may_see: Vec<NodeMatcher>,
}
