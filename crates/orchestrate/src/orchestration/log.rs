//! A run's log: one key per batch of entries, written by the leader only.

use bunraku_model::RunId;
use bunraku_plan::run::{Entry, RunLog};
use bunraku_store::{Compare, SharedStore, Store, StoreError, Transaction, TransactionOutcome};
use bytes::Bytes;

use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// Reads the entries from batch `after` on.
pub(super) async fn read(
    store: &dyn Store,
    run: RunId,
    after: u64,
) -> Result<RunLog, ServiceError> {
    let mut log = RunLog {
        entries: Vec::new(),
        next: after,
    };
    for entry in document::read_all(store, &keys::run_log_prefix(run)).await? {
        let Some(number) = keys::parse_run_log(&entry.key) else {
            continue;
        };
        if number >= after {
            log.entries.extend(document::decode::<Vec<Entry>>(&entry)?);
            log.next = number + 1;
        }
    }
    Ok(log)
}

/// Appends to the log as long as this server leads the run.
pub(super) struct LogWriter {
    store: SharedStore,
    run: RunId,
    /// The leader's own value of the leader key: the fence.
    fence: Bytes,
    next: u64,
}

/// The error if another server leads the run.
#[derive(Debug)]
pub(super) struct Fenced;

impl LogWriter {
    pub(super) fn new(store: SharedStore, run: RunId, fence: Bytes, next: u64) -> Self {
        Self {
            store,
            run,
            fence,
            next,
        }
    }

    /// Starts a transaction that succeeds only for the leader.
    pub(super) fn fenced(&self) -> Transaction {
        let leader = keys::run_leader(self.run);
        Transaction::new().when(Compare::Value(leader, self.fence.clone()))
    }

    /// Stores a batch. When this returns successfully, the batch is durable.
    pub(super) async fn append(
        &mut self,
        entries: &[Entry],
    ) -> Result<Result<(), Fenced>, ServiceError> {
        let key = keys::run_log(self.run, self.next);
        let value = document::encode(&entries);
        let transaction = self
            .fenced()
            .when(Compare::Absent(key.clone()))
            .put(key.clone(), value.clone());
        let written = match self.store.commit(transaction).await {
            Ok(TransactionOutcome::Committed(_)) => true,
            // Only this leader writes the key, so its content shows whether the write succeeded.
            Ok(TransactionOutcome::Refused(_)) | Err(StoreError::OutcomeUnknown(_)) => {
                let found = self.store.get(&key).await?;
                found.is_some_and(|found| found.value == value)
            }
            Err(error) => return Err(error.into()),
        };
        if written {
            self.next += 1;
            return Ok(Ok(()));
        }
        let leader = self.store.get(&keys::run_leader(self.run)).await?;
        match leader.is_some_and(|leader| leader.value == self.fence) {
            // Unknown, and not written: the store was unavailable. The caller retries.
            true => Err(StoreError::Unavailable("the log could not be written".into()).into()),
            false => Ok(Err(Fenced)),
        }
    }
}
