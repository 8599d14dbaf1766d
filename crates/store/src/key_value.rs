//! Keys with their values and their place in history.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::LeaseId;

/// A point in the store's history. Every committed transaction that changes
/// something makes the next one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key's newest value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyValue {
    pub key: String,
    pub value: Bytes,
    /// When the key came to exist (again).
    pub created: Revision,
    /// When it was written last.
    pub modified: Revision,
    /// How often it was written since it was created: 1 for the first time.
    pub version: u64,
    /// The lease that it goes with.
    pub lease: Option<LeaseId>,
}

/// Which keys to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// Keys that start with this. Empty: all.
    pub prefix: String,
    /// Only keys after this one: the last key of the page before.
    pub after: Option<String>,
    /// At most so many. 0: as many as the backend gives in one page.
    pub limit: usize,
    /// Leave the values out.
    pub keys_only: bool,
}

impl Range {
    /// Everything under a prefix.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            after: None,
            limit: 0,
            keys_only: false,
        }
    }
}

/// A page of keys, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangePage {
    pub items: Vec<KeyValue>,
    /// There are more after the last of these.
    pub more: bool,
    /// The store's revision when it was read: watch from the next one.
    pub revision: Revision,
}
