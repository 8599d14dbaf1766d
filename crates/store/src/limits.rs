//! The limits of every backend, so that a request that works on one works on all.
//!
//! The figures are etcd's defaults with room for its framing: a default etcd never refuses a
//! request that passes here, and the embedded store refuses the same requests as etcd.

use std::collections::BTreeSet;

use crate::{Compare, Operation, StoreError, Transaction};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;
/// The largest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// The maximum number of compares, of operations and of reads in one transaction.
pub const MAX_OPERATIONS: usize = 128;
/// The total size of all keys and values in one transaction (etcd's default is 1.5 MiB).
pub const MAX_TRANSACTION_BYTES: usize = 1_500_000;
/// The size of an entry in addition to its key and value.
const ENTRY_OVERHEAD: usize = 64;

/// Checks a key. It is a path: not empty, no leading slash, no NUL.
pub fn check_key(key: &str) -> Result<(), StoreError> {
    if key.is_empty() {
        return Err(StoreError::Invalid("a key must not be empty".to_owned()));
    }
    check_prefix(key)
}

/// Checks a prefix. It is a key or the start of one; empty means everything.
pub fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    if prefix.starts_with('/') {
        return Err(StoreError::Invalid(format!(
            "a key must not start with a slash: {prefix:?}"
        )));
    }
    if prefix.contains('\0') {
        return Err(StoreError::Invalid(format!(
            "a key must not contain NUL: {prefix:?}"
        )));
    }
    at_most("a key's length", prefix.len(), MAX_KEY_BYTES)
}

/// Checks everything about a transaction that does not depend on the store's content.
///
/// No key may be put twice, or put and deleted, in one transaction: etcd refuses it, because a
/// revision holds one change per key.
pub fn check_transaction(transaction: &Transaction) -> Result<(), StoreError> {
    for (what, size) in [
        ("the number of compares", transaction.compares.len()),
        ("the number of operations", transaction.operations.len()),
        ("the number of reads", transaction.reads_on_failure.len()),
    ] {
        at_most(what, size, MAX_OPERATIONS)?;
    }
    for compare in &transaction.compares {
        check_key(compare_key(compare))?;
    }
    for key in &transaction.reads_on_failure {
        check_key(key)?;
    }
    for operation in &transaction.operations {
        check_operation(operation)?;
    }
    let size = transaction_bytes(transaction);
    at_most("a transaction's size in bytes", size, MAX_TRANSACTION_BYTES)?;
    check_overlap(transaction)
}

/// Returns the size that [`MAX_TRANSACTION_BYTES`] limits.
pub fn transaction_bytes(transaction: &Transaction) -> usize {
    let compares = transaction.compares.iter().map(|compare| match compare {
        Compare::Value(key, value) => key.len() + value.len(),
        other => compare_key(other).len(),
    });
    let operations = transaction
        .operations
        .iter()
        .map(|operation| match operation {
            Operation::Put { key, value, .. } => key.len() + value.len(),
            Operation::Delete { key } => key.len(),
            Operation::DeletePrefix { prefix } => 2 * prefix.len(),
        });
    let reads = transaction.reads_on_failure.iter().map(String::len);
    compares
        .chain(operations)
        .chain(reads)
        .map(|bytes| bytes + ENTRY_OVERHEAD)
        .sum()
}

pub(crate) fn compare_key(compare: &Compare) -> &str {
    match compare {
        Compare::Absent(key)
        | Compare::Exists(key)
        | Compare::Modified(key, _)
        | Compare::Version(key, _)
        | Compare::Value(key, _) => key,
    }
}

fn check_operation(operation: &Operation) -> Result<(), StoreError> {
    match operation {
        Operation::Put { key, value, .. } => {
            check_key(key)?;
            at_most("a value's size in bytes", value.len(), MAX_VALUE_BYTES)
        }
        Operation::Delete { key } => check_key(key),
        Operation::DeletePrefix { prefix } => check_prefix(prefix),
    }
}

fn check_overlap(transaction: &Transaction) -> Result<(), StoreError> {
    let mut put = BTreeSet::new();
    for operation in &transaction.operations {
        if let Operation::Put { key, .. } = operation
            && !put.insert(key.as_str())
        {
            return Err(written_twice(key));
        }
    }
    for operation in &transaction.operations {
        let clash = match operation {
            Operation::Put { .. } => None,
            Operation::Delete { key } => put.get(key.as_str()),
            Operation::DeletePrefix { prefix } => put
                .range(prefix.as_str()..)
                .next()
                .filter(|key| key.starts_with(prefix.as_str())),
        };
        if let Some(key) = clash {
            return Err(written_twice(key));
        }
    }
    Ok(())
}

fn written_twice(key: &str) -> StoreError {
    StoreError::Invalid(format!(
        "{key:?} is written twice in one transaction: write each key once"
    ))
}

fn at_most(what: &'static str, size: usize, limit: usize) -> Result<(), StoreError> {
    if size > limit {
        return Err(StoreError::TooLarge { what, size, limit });
    }
    Ok(())
}
