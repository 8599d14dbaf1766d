//! The condition that a node still exists, for transactions that write something about it.

use bunraku_model::NodeName;
use bunraku_store::{Compare, KeyValue, Transaction};

use crate::{ServiceError, keys};

/// Starts a transaction that is refused if the node does not exist. Its record is the first of the
/// reads on failure: pass those to [`check_refusal`].
pub(crate) fn when_exists(node: &NodeName) -> Transaction {
    let record = keys::node_record(node);
    Transaction::new()
        .when(Compare::Exists(record.clone()))
        .read_on_failure(record)
}

/// Fails if a transaction was refused because the node does not exist. Without a refusal there are
/// no reads.
pub(crate) fn check_refusal(
    reads: &[Option<KeyValue>],
    node: &NodeName,
) -> Result<(), ServiceError> {
    if is_gone(reads) {
        return Err(ServiceError::no_such_node(node));
    }
    Ok(())
}

/// Returns whether a transaction was refused because the node does not exist.
pub(crate) fn is_gone(reads: &[Option<KeyValue>]) -> bool {
    reads.first().is_some_and(Option::is_none)
}
