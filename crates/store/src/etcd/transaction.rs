//! A transaction as etcd takes it, checked before it is sent.

use std::collections::BTreeSet;

use etcd_client::{
    Compare as EtcdCompare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp,
};

use super::keys::{Root, number};
use crate::{Compare, LeaseId, Operation, StoreError, Transaction};

/// What protobuf adds to one compare or operation, at most.
const OVERHEAD: usize = 48;

pub(super) struct Limits {
    pub(super) operations: usize,
    pub(super) bytes: usize,
}

/// Refuses what etcd would refuse, with words that say why.
pub(super) fn check(
    transaction: &Transaction,
    root: &Root,
    limits: &Limits,
) -> Result<(), StoreError> {
    let most = [
        ("the number of compares", transaction.compares.len()),
        ("the number of operations", transaction.operations.len()),
        ("the number of reads", transaction.reads_on_failure.len()),
    ];
    for (what, size) in most {
        if size > limits.operations {
            return Err(StoreError::TooLarge {
                what,
                size,
                limit: limits.operations,
            });
        }
    }
    let size = encoded_size(transaction, root)?;
    if size > limits.bytes {
        return Err(StoreError::TooLarge {
            what: "the transaction in bytes",
            size,
            limit: limits.bytes,
        });
    }
    refuse_overlaps(&transaction.operations)
}

/// An upper bound.
pub(super) fn encoded_size(transaction: &Transaction, root: &Root) -> Result<usize, StoreError> {
    let mut size = 0;
    for compare in &transaction.compares {
        let (key, value) = match compare {
            Compare::Value(key, value) => (key, value.len()),
            Compare::Absent(key)
            | Compare::Exists(key)
            | Compare::Modified(key, _)
            | Compare::Version(key, _) => (key, 0),
        };
        size += root.key(key)?.len() + value + OVERHEAD;
    }
    for operation in &transaction.operations {
        size += OVERHEAD
            + match operation {
                Operation::Put { key, value, .. } => root.key(key)?.len() + value.len(),
                Operation::Delete { key } => root.key(key)?.len(),
                Operation::DeletePrefix { prefix } => 2 * root.prefix(prefix)?.len(),
            };
    }
    for key in &transaction.reads_on_failure {
        size += root.key(key)?.len() + OVERHEAD;
    }
    Ok(size)
}

/// One transaction is one point in history: a key has one fate in it.
fn refuse_overlaps(operations: &[Operation]) -> Result<(), StoreError> {
    let mut puts = BTreeSet::new();
    for operation in operations {
        if let Operation::Put { key, .. } = operation
            && !puts.insert(key.as_str())
        {
            return Err(twice(key));
        }
    }
    for operation in operations {
        let hit = match operation {
            Operation::Put { .. } => None,
            Operation::Delete { key } => puts.get(key.as_str()),
            Operation::DeletePrefix { prefix } => puts
                .range(prefix.as_str()..)
                .next()
                .filter(|key| key.starts_with(prefix.as_str())),
        };
        if let Some(key) = hit {
            return Err(twice(key));
        }
    }
    Ok(())
}

fn twice(key: &str) -> StoreError {
    StoreError::Invalid(format!("the transaction changes the key `{key}` twice"))
}

pub(super) fn build(transaction: &Transaction, root: &Root) -> Result<Txn, StoreError> {
    let compares = transaction
        .compares
        .iter()
        .map(|compare| build_compare(compare, root))
        .collect::<Result<Vec<_>, _>>()?;
    let operations = transaction
        .operations
        .iter()
        .map(|operation| build_operation(operation, root))
        .collect::<Result<Vec<_>, _>>()?;
    let reads = transaction
        .reads_on_failure
        .iter()
        .map(|key| Ok(TxnOp::get(root.key(key)?, None::<GetOptions>)))
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok(Txn::new()
        .when(compares)
        .and_then(operations)
        .or_else(reads))
}

fn build_compare(compare: &Compare, root: &Root) -> Result<EtcdCompare, StoreError> {
    use CompareOp::{Equal, Greater};
    Ok(match compare {
        Compare::Absent(key) => EtcdCompare::create_revision(root.key(key)?, Equal, 0),
        Compare::Exists(key) => EtcdCompare::create_revision(root.key(key)?, Greater, 0),
        Compare::Modified(key, at) => EtcdCompare::mod_revision(root.key(key)?, Equal, number(*at)),
        Compare::Version(key, version) => EtcdCompare::version(
            root.key(key)?,
            Equal,
            i64::try_from(*version).unwrap_or(i64::MAX),
        ),
        Compare::Value(key, value) => EtcdCompare::value(root.key(key)?, Equal, value.to_vec()),
    })
}

fn build_operation(operation: &Operation, root: &Root) -> Result<TxnOp, StoreError> {
    Ok(match operation {
        Operation::Put { key, value, lease } => {
            let options = lease.map(|LeaseId(id)| PutOptions::new().with_lease(id));
            TxnOp::put(root.key(key)?, value.to_vec(), options)
        }
        Operation::Delete { key } => TxnOp::delete(root.key(key)?, None),
        Operation::DeletePrefix { prefix } => TxnOp::delete(
            root.prefix(prefix)?,
            Some(DeleteOptions::new().with_prefix()),
        ),
    })
}

/// Whether it can be sent again after an unknown outcome without being done
/// twice: it changes a key that it compares with the revision of its last
/// change. A key never gets back to a revision, so at most one of all the
/// copies that may be under way can be committed.
///
/// `Absent` and `Version` do not suffice: the key may have been deleted by
/// someone else in between, and the copy would do it all again.
pub(super) fn guards_itself(transaction: &Transaction) -> bool {
    transaction.compares.iter().any(|compare| match compare {
        Compare::Modified(key, at) if at.0 > 0 => transaction
            .operations
            .iter()
            .any(|operation| changes(operation, key)),
        _ => false,
    })
}

fn changes(operation: &Operation, key: &str) -> bool {
    match operation {
        Operation::Put { key: put, .. } => put == key,
        Operation::Delete { key: deleted } => deleted == key,
        Operation::DeletePrefix { prefix } => key.starts_with(prefix.as_str()),
    }
}

/// The lease that a refusal "lease not found" is about: the first one named.
pub(super) fn first_lease(transaction: &Transaction) -> Option<LeaseId> {
    transaction
        .operations
        .iter()
        .find_map(|operation| match operation {
            Operation::Put { lease, .. } => *lease,
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Revision;

    fn checked(transaction: &Transaction) -> Result<(), StoreError> {
        let root = Root::new("/r/").expect("a root");
        check(
            transaction,
            &root,
            &Limits {
                operations: 3,
                bytes: 1000,
            },
        )
    }

    #[test]
    fn a_key_that_is_changed_twice_is_refused() {
        let transactions = [
            Transaction::new().put("a/b", "1").put("a/b", "2"),
            Transaction::new().put("a/b", "1").delete("a/b"),
            Transaction::new().delete_prefix("a/").put("a/b", "1"),
            Transaction::new().put("a/b", "1").delete_prefix(""),
        ];
        for transaction in transactions {
            let error = checked(&transaction).expect_err("an overlap");
            assert_eq!(
                error.to_string(),
                "the transaction changes the key `a/b` twice"
            );
        }
        checked(
            &Transaction::new()
                .put("b", "1")
                .delete_prefix("a/")
                .delete("a/b"),
        )
        .expect("no overlap with the put");
    }

    #[test]
    fn what_is_too_large_is_refused_with_its_size() {
        let four = Transaction::new()
            .put("a", "")
            .put("b", "")
            .put("c", "")
            .put("d", "");
        assert_eq!(
            checked(&four).expect_err("too many").to_string(),
            "the number of operations is 4, and the store takes at most 3"
        );
        let long = Transaction::new().put("a", vec![0; 1000]);
        assert!(matches!(
            checked(&long),
            Err(StoreError::TooLarge { limit: 1000, .. })
        ));
    }

    #[test]
    fn only_a_compared_revision_guards_a_repetition() {
        let modified = Compare::Modified("a".to_owned(), Revision(7));
        let guarded = [
            Transaction::new().when(modified.clone()).put("a", "1"),
            Transaction::new().when(modified.clone()).delete("a"),
            Transaction::new().when(modified.clone()).delete_prefix(""),
        ];
        assert!(guarded.iter().all(guards_itself));
        let not = [
            Transaction::new().put("a", "1"),
            Transaction::new().when(modified).put("b", "1"),
            Transaction::new()
                .when(Compare::Absent("a".to_owned()))
                .put("a", "1"),
            Transaction::new()
                .when(Compare::Version("a".to_owned(), 1))
                .put("a", "1"),
        ];
        assert!(!not.iter().any(guards_itself));
    }
}
