//! A run's log: one key per batch of entries, written by the leader only.

use bunraku_model::RunId;
use bunraku_plan::run::{RunLog, RunLogEntry};
use bunraku_store::{Compare, Settled, SharedStore, Store, StoreError, Transaction, settle};
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
            log.entries
                .extend(document::decode::<Vec<RunLogEntry>>(&entry)?);
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
pub(super) struct LeadershipLost;

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
        entries: &[RunLogEntry],
    ) -> Result<Result<(), LeadershipLost>, ServiceError> {
        let key = keys::run_log(self.run, self.next);
        let value = document::encode(&entries);
        let transaction = self
            .fenced()
            .when(Compare::Absent(key.clone()))
            .put(key.clone(), value.clone());
        let written = match settle(&*self.store, transaction).await {
            Ok(Settled::Committed) => true,
            // Only this leader writes the key, so its content shows whether the write succeeded.
            Ok(Settled::Refused(_)) | Err(StoreError::OutcomeUnknown(_)) => {
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
        if leader.is_some_and(|leader| leader.value == self.fence) {
            // Unknown, and not written: the store was unavailable. The caller retries.
            Err(StoreError::Unavailable("cannot write the run log".into()).into())
        } else {
            Ok(Err(LeadershipLost))
        }
    }
}
