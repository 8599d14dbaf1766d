//! Converts transactions to etcd's form. [`crate::limits`] has already refused transactions that
//! are too large or change a key twice.

use etcd_client::{
    Compare as EtcdCompare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp,
};

use super::keys::{Root, number};
use crate::{Compare, LeaseId, Operation, StoreError, Transaction};

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

/// Returns whether the transaction can be sent again after an unknown outcome without being done
/// twice: it changes a key and compares that key's last revision. A key never returns to an earlier
/// revision, so at most one of all copies in progress can be committed.
///
/// `Absent` and `Version` are not enough: someone else may have deleted the key in between, and the
/// copy would repeat everything.
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

/// Returns the lease that a "lease not found" error is about: the first one named.
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
