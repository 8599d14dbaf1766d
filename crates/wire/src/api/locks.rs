//! Locks that nodes and people share, with leases and fencing tokens.

use bunraku_model::{LockName, NodeName, TriggerName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Take a lock, or get in line for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AcquireLock {
    /// Tells holders under one certificate apart. The same session again
    /// renews what it has, and gets the same token.
    pub session: String,
    /// The lock, or the place in line, is lost after so long without a sign of life.
    pub lease_seconds: u64,
    /// How long the answer may be held back while others hold the lock.
    #[serde(default)]
    pub wait_seconds: u64,
    /// Do not get in line: take it now or not at all.
    #[serde(default)]
    pub only_now: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For a lock that nobody has used or defined yet: how many may hold it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LockReply {
    Held {
        /// Rises with every change of hands; hand it to whatever the lock protects.
        token: u64,
        /// It was not held before this request.
        taken: bool,
    },
    /// In line: ask again, with the same session, before the lease ends.
    Waiting { ahead: usize, holders: Vec<Holder> },
    /// Others hold it, and nobody was put in line.
    Taken { holders: Vec<Holder> },
}

/// Renew or release by the token that the lock was handed out with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LockToken {
    pub token: u64,
}

/// Give a place in line back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaveLine {
    pub session: String,
}

/// An operator takes a lock away from its holder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BreakLock {
    pub token: u64,
    pub reason: String,
}

/// What a lock is, apart from who holds it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DefineLock {
    pub slots: u32,
    /// Fired whenever the holders change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub on_change: Option<TriggerName>,
    /// Where that starts runs; without any, on the old and the new holders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub hosts: Vec<NodeName>,
}

/// Who has it, or waits for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    /// The name in the certificate.
    pub owner: String,
    pub session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// 0 for those who wait.
    pub token: u64,
}

/// A lock and everybody around it.
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
}
