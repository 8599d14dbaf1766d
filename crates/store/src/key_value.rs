//! Keys with their values and their position in history.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::LeaseId;

/// A point in the store's history. Every committed transaction that changes something creates the
/// next one.
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
    /// The revision that created the key (again).
    pub created: Revision,
    /// The revision of the last write.
    pub modified: Revision,
    /// The number of writes since the key was created; the first write is 1.
    pub version: u64,
    /// The lease that the key is bound to.
    pub lease: Option<LeaseId>,
}

/// A selection of keys to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// Keys that start with this. Empty: all.
    pub prefix: String,
    /// Only keys after this one: the last key of the page before.
    pub after: Option<String>,
    /// The maximum number of keys. 0: the backend's page size.
    pub limit: usize,
    /// Leave the values out.
    pub keys_only: bool,
}

impl Range {
    /// Selects everything under a prefix.
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
    /// More keys follow after the last of these.
    pub more: bool,
    /// The store's revision at the time of the read: watch from the next one.
    pub revision: Revision,
}
