//! Leases: time limits that their owners must keep renewing.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The id of a lease, issued by the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub i64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// The remaining time of a lease, and its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseStatus {
    pub granted: Duration,
    pub remaining: Duration,
    /// The keys bound to it, in order.
    pub keys: Vec<String>,
}
