//! Leases: time that someone must keep buying.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A lease, by the number that the store gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub i64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// What is left of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseStatus {
    pub granted: Duration,
    pub remaining: Duration,
    /// The keys that go with it, in order.
    pub keys: Vec<String>,
}
