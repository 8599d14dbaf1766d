//! Finding out whether a transaction was committed when the store did not say.
//!
//! [`settle`] sends the same transaction again. Its compares let at most one of the copies
//! through. If a copy is refused, either an earlier copy was committed or another writer was
//! faster. The keys that the transaction both compares and changes tell: if all of them are as it
//! would have left them, it counts as committed.
//!
//! Two writers that write the same bytes over the same state cannot be told apart. So a document
//! in which every write counts (a sum, a list that grows) has to contain something that differs
//! between writers: an id, a token, a time.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    Compare, KeyValue, LeaseId, Operation, Revision, Store, StoreError, Transaction,
    TransactionOutcome,
};

/// The number of copies that follow a transaction with an unknown outcome.
const COPIES: u32 = 5;
/// The pause before the first copy. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The outcome of a transaction that was settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Settled {
    /// It was committed, once.
    Committed,
    /// It was not committed. Has one entry per key of its `reads_on_failure`.
    Refused(Vec<Option<KeyValue>>),
}

impl Settled {
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Committed)
    }
}

/// The reason for which an unknown outcome stays unknown.
pub(crate) enum Unsettled {
    /// The store does not answer.
    Unanswered(Box<dyn std::error::Error + Send + Sync>),
    /// The store answers, but another writer has changed what would show the outcome.
    Hidden(Box<dyn std::error::Error + Send + Sync>),
    /// The store refused the transaction, or failed in another way. It was not committed.
    Failed(StoreError),
}

impl From<Unsettled> for StoreError {
    fn from(unsettled: Unsettled) -> Self {
        match unsettled {
            Unsettled::Unanswered(doubt) | Unsettled::Hidden(doubt) => Self::OutcomeUnknown(doubt),
            Unsettled::Failed(error) => error,
        }
    }
}

/// Commits a transaction. If the outcome is unknown, finds out.
///
/// A transaction without compares is repeated until it is answered: use it only for writes that
/// may happen again. Fails with [`StoreError::OutcomeUnknown`] if the store does not answer, or if
/// the state does not tell whose write it shows.
pub async fn settle(store: &dyn Store, transaction: Transaction) -> Result<Settled, StoreError> {
    Ok(try_settle(store, transaction).await?)
}

/// Does the same as [`settle`], and says why an outcome stays unknown.
pub(crate) async fn try_settle(
    store: &dyn Store,
    transaction: Transaction,
) -> Result<Settled, Unsettled> {
    let doubt = match store.commit(transaction.clone()).await {
        Ok(TransactionOutcome::Committed(_)) => return Ok(Settled::Committed),
        Ok(TransactionOutcome::Refused(reads)) => return Ok(Settled::Refused(reads)),
        Err(StoreError::OutcomeUnknown(doubt)) => doubt,
        Err(error) => return Err(Unsettled::Failed(error)),
    };
    let marks = marks(&transaction);
    let copy = Transaction {
        reads_on_failure: marks.iter().map(|mark| mark.key.clone()).collect(),
        ..transaction
    };
    let mut pause = FIRST_PAUSE;
    for _ in 0..COPIES {
        tokio::time::sleep(pause).await;
        pause *= 2;
        match store.commit(copy.clone()).await {
            Ok(TransactionOutcome::Committed(_)) => return Ok(Settled::Committed),
            Ok(TransactionOutcome::Refused(found)) if are_left(&marks, &found) => {
                return Ok(Settled::Committed);
            }
            Ok(TransactionOutcome::Refused(_)) => return Err(Unsettled::Hidden(doubt)),
            Err(StoreError::OutcomeUnknown(_) | StoreError::Unavailable(_)) => {}
            Err(_) => break,
        }
    }
    Err(Unsettled::Unanswered(doubt))
}

/// A key that shows whether a transaction was committed: the transaction requires one state of it
/// before, and leaves a different one.
struct Mark {
    key: String,
    before: Before,
    after: Option<(Bytes, Option<LeaseId>)>,
}

enum Before {
    Absent,
    Modified(Revision),
    Version(u64),
    Value(Bytes),
}

impl Before {
    fn of(compare: &Compare) -> Option<(&String, Self)> {
        Some(match compare {
            Compare::Absent(key)
            | Compare::Modified(key, Revision(0))
            | Compare::Version(key, 0) => (key, Self::Absent),
            Compare::Modified(key, revision) => (key, Self::Modified(*revision)),
            Compare::Version(key, version) => (key, Self::Version(*version)),
            Compare::Value(key, value) => (key, Self::Value(value.clone())),
            Compare::Exists(_) => return None,
        })
    }
}

impl Mark {
    /// Returns a mark if the key differs before and after the transaction.
    fn new(compare: &Compare, operations: &[Operation]) -> Option<Self> {
        let (key, before) = Before::of(compare)?;
        let after = operations.iter().find_map(|operation| match operation {
            Operation::Put {
                key: put,
                value,
                lease,
            } if put == key => Some(Some((value.clone(), *lease))),
            Operation::Delete { key: deleted } if deleted == key => Some(None),
            Operation::DeletePrefix { prefix } if key.starts_with(prefix) => Some(None),
            _ => None,
        })?;
        let differs = match (&before, &after) {
            (Before::Absent, None) => false,
            (Before::Value(before), Some((after, _))) => before != after,
            _ => true,
        };
        differs.then(|| Self {
            key: key.clone(),
            before,
            after,
        })
    }

    /// Returns whether the key is as the transaction leaves it.
    fn is_left(&self, found: Option<&KeyValue>) -> bool {
        match (&self.after, found) {
            (None, found) => found.is_none(),
            (Some(_), None) => false,
            (Some((value, lease)), Some(found)) => {
                let changed = match self.before {
                    Before::Modified(revision) => found.modified != revision,
                    Before::Version(version) => found.version != version,
                    Before::Absent | Before::Value(_) => true,
                };
                changed && found.value == *value && found.lease == *lease
            }
        }
    }
}

fn marks(transaction: &Transaction) -> Vec<Mark> {
    let compares = transaction.compares.iter();
    compares
        .filter_map(|compare| Mark::new(compare, &transaction.operations))
        .collect()
}

/// Returns whether all marks show the state after the transaction. One is not enough: another
/// writer may have left it, or the end of a lease.
fn are_left(marks: &[Mark], found: &[Option<KeyValue>]) -> bool {
    let mut pairs = marks.iter().zip(found);
    !marks.is_empty() && pairs.all(|(mark, found)| mark.is_left(found.as_ref()))
}
