//! Transactions: all operations or none, if the compared state still holds.

use bytes::Bytes;

use crate::{KeyValue, LeaseId, Revision};

/// A condition for the operations to be done.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Compare {
    /// The key does not exist.
    Absent(String),
    /// The key exists.
    Exists(String),
    /// The key was last written at this revision (0: it does not exist).
    Modified(String, Revision),
    /// The key has this version (1: written once; 0: it does not exist).
    Version(String, u64),
    /// The key has this value.
    Value(String, Bytes),
}

/// One write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    Put {
        key: String,
        value: Bytes,
        lease: Option<LeaseId>,
    },
    Delete {
        key: String,
    },
    DeletePrefix {
        prefix: String,
    },
}

/// Compares, then operations. Build it by chaining.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Transaction {
    pub compares: Vec<Compare>,
    pub operations: Vec<Operation>,
    /// Keys to read in the same step when a compare fails: the loser must check them before it
    /// tries again.
    pub reads_on_failure: Vec<String>,
}

impl Transaction {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn when(mut self, compare: Compare) -> Self {
        self.compares.push(compare);
        self
    }

    /// Adds a compare that the key is unchanged since it was read: still absent, or with the same
    /// last revision.
    #[must_use]
    pub fn when_unchanged(self, key: &str, read: Option<&KeyValue>) -> Self {
        self.when(match read {
            None => Compare::Absent(key.to_owned()),
            Some(known) => Compare::Modified(key.to_owned(), known.modified),
        })
    }

    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.operations.push(Operation::Put {
            key: key.into(),
            value: value.into(),
            lease: None,
        });
        self
    }

    #[must_use]
    pub fn put_with_lease(
        mut self,
        key: impl Into<String>,
        value: impl Into<Bytes>,
        lease: LeaseId,
    ) -> Self {
        self.operations.push(Operation::Put {
            key: key.into(),
            value: value.into(),
            lease: Some(lease),
        });
        self
    }

    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.operations.push(Operation::Delete { key: key.into() });
        self
    }

    #[must_use]
    pub fn delete_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.operations.push(Operation::DeletePrefix {
            prefix: prefix.into(),
        });
        self
    }

    #[must_use]
    pub fn read_on_failure(mut self, key: impl Into<String>) -> Self {
        self.reads_on_failure.push(key.into());
        self
    }
}

/// The outcome of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransactionOutcome {
    /// Every compare held; everything was done, durably, at this revision.
    Committed(Revision),
    /// A compare did not hold, and nothing was done. Has one entry per key of `reads_on_failure`,
    /// as of that moment.
    Refused(Vec<Option<KeyValue>>),
}

impl TransactionOutcome {
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Committed(_))
    }
}
