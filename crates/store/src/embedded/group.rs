//! Many requests, one fsync.
//!
//! A [`CommitGroup`] performs requests one after the other inside one SQLite transaction. Each request
//! that changes something gets its own revision and sees the effects of those before it. Nothing
//! takes effect, in memory or on disk, until the writer has committed the group.
//!
//! Rule: a request is refused before its first write, or not at all.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::Connection;

use super::failure::{Failure, RequestResult};
use super::leases::{Lease, Leases, milliseconds};
use super::rows;
use crate::limits;
use crate::{
    Change, Compare, KeyValue, LeaseId, LeaseStatus, Operation, Revision, StoreError, Transaction,
    TransactionOutcome, WatchBatch,
};

/// The pending changes of a group to the state in memory.
#[derive(Default)]
pub(super) struct StagedChanges {
    pub(super) batches: Vec<WatchBatch>,
    pub(super) leases: HashMap<LeaseId, Option<Lease>>,
    pub(super) oldest: Option<u64>,
}

/// The keys that the compares of a transaction read. A transaction writes each key once, so its
/// write may reuse the value.
type ReadKeys<'a> = HashMap<&'a str, Option<KeyValue>>;

pub(super) struct CommitGroup<'a> {
    connection: &'a Connection,
    leases: &'a Leases,
    revision: u64,
    oldest: u64,
    /// The arrival time of the current request, since boot. Leases are judged by it: a keep-alive
    /// that waited for the disk counts from the time it was sent.
    pub(super) arrived: Duration,
    /// The number of bytes that may be added before the quota is reached. Operations that free
    /// space are always performed.
    pub(super) room_bytes: i64,
    pub(super) staged: StagedChanges,
}

impl<'a> CommitGroup<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        leases: &'a Leases,
        revision: u64,
        oldest: u64,
    ) -> Self {
        Self {
            connection,
            leases,
            revision,
            oldest,
            arrived: Duration::ZERO,
            room_bytes: i64::MAX,
            staged: StagedChanges::default(),
        }
    }

    pub(super) fn commit(
        &mut self,
        transaction: &Transaction,
    ) -> RequestResult<TransactionOutcome> {
        let mut read = ReadKeys::new();
        for compare in &transaction.compares {
            let key = limits::compare_key(compare);
            let found = rows::get_key(self.connection, key)?;
            if !holds(compare, found.as_ref()) {
                return Ok(Ok(TransactionOutcome::Refused(self.read_all(transaction)?)));
            }
            read.insert(key, found);
        }
        if let Err(refusal) = self.check_operations(&transaction.operations)? {
            return Ok(Err(refusal));
        }
        let mut changes = Vec::new();
        for operation in &transaction.operations {
            self.operate(operation, &mut read, &mut changes)?;
        }
        self.end_revision(changes);
        Ok(Ok(TransactionOutcome::Committed(Revision(self.revision))))
    }

    pub(super) fn grant(&mut self, id: LeaseId, ttl: Duration) -> RequestResult<LeaseId> {
        let lease = Lease {
            granted: ttl,
            end: self.arrived + ttl,
        };
        self.write_lease(id, lease)?;
        Ok(Ok(id))
    }

    pub(super) fn keep_alive(&mut self, id: LeaseId) -> RequestResult<()> {
        let Some(lease) = self.alive(id) else {
            return Ok(Err(StoreError::LeaseNotFound(id)));
        };
        let lease = Lease {
            // A request that arrived later may have been performed first.
            end: lease.end.max(self.arrived + lease.granted),
            ..lease
        };
        self.write_lease(id, lease)?;
        Ok(Ok(()))
    }

    pub(super) fn revoke(&mut self, id: LeaseId) -> RequestResult<()> {
        if self.alive(id).is_none() {
            return Ok(Err(StoreError::LeaseNotFound(id)));
        }
        self.end_lease(id)?;
        Ok(Ok(()))
    }

    pub(super) fn lease_status(&mut self, id: LeaseId) -> RequestResult<Option<LeaseStatus>> {
        let Some(lease) = self.alive(id) else {
            return Ok(Ok(None));
        };
        Ok(Ok(Some(LeaseStatus {
            granted: lease.granted,
            remaining: lease.end.saturating_sub(self.arrived),
            keys: self.keys_of(id)?,
        })))
    }

    /// Deletes the lease and its keys, in one revision.
    pub(super) fn end_lease(&mut self, id: LeaseId) -> Result<(), Failure> {
        let keys = self.keys_of(id)?;
        for keys in keys.chunks(rows::MAX_CHANGES) {
            let mut changes = Vec::new();
            for key in keys {
                self.delete(key.clone(), &mut changes)?;
            }
            self.end_revision(changes);
        }
        self.connection
            .prepare_cached("DELETE FROM leases WHERE id = ?1")?
            .execute([id.0])?;
        self.staged.leases.insert(id, None);
        Ok(())
    }

    /// Marks history before `oldest` as gone. The rows are deleted gradually.
    pub(super) fn compact(&mut self, oldest: u64) -> RequestResult<()> {
        if oldest > self.revision {
            return Ok(Err(StoreError::Invalid(format!(
                "cannot delete history up to revision {oldest}: the newest is {}",
                self.revision
            ))));
        }
        if oldest > self.oldest {
            rows::put_oldest_revision(self.connection, oldest)?;
            self.oldest = oldest;
            self.staged.oldest = Some(oldest);
        }
        Ok(Ok(()))
    }

    /// Returns the lease, unless it had ended when the request arrived.
    fn alive(&self, id: LeaseId) -> Option<Lease> {
        let lease = match self.staged.leases.get(&id) {
            Some(staged) => *staged,
            None => self.leases.get(id),
        };
        lease.filter(|lease| lease.end > self.arrived)
    }

    fn write_lease(&mut self, id: LeaseId, lease: Lease) -> Result<(), Failure> {
        rows::put_lease(
            self.connection,
            id,
            milliseconds(lease.granted),
            milliseconds(lease.end),
        )?;
        self.staged.leases.insert(id, Some(lease));
        Ok(())
    }

    fn read_all(&self, transaction: &Transaction) -> Result<Vec<Option<KeyValue>>, Failure> {
        transaction
            .reads_on_failure
            .iter()
            .map(|key| rows::get_key(self.connection, key))
            .collect()
    }

    fn check_operations(&mut self, operations: &[Operation]) -> RequestResult<()> {
        let (mut changes, mut put_bytes) = (operations.len(), 0);
        for operation in operations {
            match operation {
                Operation::Put {
                    lease: Some(lease), ..
                } if self.alive(*lease).is_none() => {
                    return Ok(Err(StoreError::LeaseNotFound(*lease)));
                }
                Operation::DeletePrefix { prefix } => changes += self.count_under(prefix)?,
                Operation::Put { key, value, .. } => put_bytes += key.len() + value.len(),
                Operation::Delete { .. } => {}
            }
        }
        // Each put is stored twice: under its key and in history.
        let needed = i64::try_from(2 * put_bytes).unwrap_or(i64::MAX);
        if put_bytes > 0 && needed > self.room_bytes {
            return Ok(Err(quota_reached()));
        }
        self.room_bytes -= needed;
        if changes > rows::MAX_CHANGES {
            return Ok(Err(StoreError::TooLarge {
                what: "the number of keys that a transaction deletes",
                size: changes,
                limit: rows::MAX_CHANGES,
            }));
        }
        Ok(Ok(()))
    }

    fn operate(
        &self,
        operation: &Operation,
        read: &mut ReadKeys<'_>,
        changes: &mut Vec<Change>,
    ) -> Result<(), Failure> {
        match operation {
            Operation::Put { key, value, lease } => {
                let revision = Revision(self.revision + 1);
                let before = match read.remove(key.as_str()) {
                    Some(known) => known,
                    None => rows::get_key(self.connection, key)?,
                };
                let entry = KeyValue {
                    key: key.clone(),
                    value: value.clone(),
                    created: before.as_ref().map_or(revision, |before| before.created),
                    modified: revision,
                    version: before.map_or(0, |before| before.version) + 1,
                    lease: *lease,
                };
                rows::put_key(self.connection, &entry)?;
                self.record(Change::Put(entry), changes)
            }
            Operation::Delete { key } => self.delete(key.clone(), changes),
            Operation::DeletePrefix { prefix } => {
                for key in self.keys_under(prefix)? {
                    self.delete(key, changes)?;
                }
                Ok(())
            }
        }
    }

    fn delete(&self, key: String, changes: &mut Vec<Change>) -> Result<(), Failure> {
        let deleted = self
            .connection
            .prepare_cached("DELETE FROM keys WHERE key = ?1")?
            .execute([key.as_bytes()])?;
        if deleted == 0 {
            return Ok(());
        }
        self.record(Change::Delete { key }, changes)
    }

    fn record(&self, change: Change, changes: &mut Vec<Change>) -> Result<(), Failure> {
        rows::put_history(self.connection, self.revision + 1, changes.len(), &change)?;
        changes.push(change);
        Ok(())
    }

    /// Ends the current revision. Without changes, no revision is created.
    fn end_revision(&mut self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        self.revision += 1;
        self.staged.batches.push(WatchBatch {
            revision: Revision(self.revision),
            changes,
        });
    }

    fn keys_of(&self, lease: LeaseId) -> Result<Vec<String>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT key FROM keys WHERE lease = ?1 ORDER BY key")?;
        let mut rows = statement.query([lease.0])?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next()? {
            keys.push(key_text(row.get(0)?)?);
        }
        Ok(keys)
    }

    fn keys_under(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        let (start, end) = rows::bounds(prefix);
        let mut statement = self
            .connection
            .prepare_cached("SELECT key FROM keys WHERE key >= ?1 AND key < ?2 ORDER BY key")?;
        let mut rows = statement.query([start, end])?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next()? {
            keys.push(key_text(row.get(0)?)?);
        }
        Ok(keys)
    }

    fn count_under(&self, prefix: &str) -> Result<usize, Failure> {
        let (start, end) = rows::bounds(prefix);
        let count: i64 = self
            .connection
            .prepare_cached("SELECT count(*) FROM keys WHERE key >= ?1 AND key < ?2")?
            .query_row([start, end], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }
}

fn holds(compare: &Compare, found: Option<&KeyValue>) -> bool {
    match compare {
        Compare::Absent(_) => found.is_none(),
        Compare::Exists(_) => found.is_some(),
        Compare::Modified(_, modified) => found.map_or(0, |found| found.modified.0) == modified.0,
        Compare::Version(_, version) => found.map_or(0, |found| found.version) == *version,
        Compare::Value(_, value) => found.is_some_and(|found| found.value == *value),
    }
}

fn key_text(bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|_| Failure::Damaged("a key is not UTF-8".to_owned()))
}

fn quota_reached() -> StoreError {
    StoreError::Full("its quota is reached".to_owned())
}
