//! A store in memory, for simulations: the same contract, no disk, no threads.
//!
//! It depends only on the order of calls and the runtime's clock, so a run with paused time is the
//! same each time. It outlives its users, as a disk does: dropping everything built on top of it
//! simulates the kill of a server.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::mpsc;
use tokio::time::Instant;

use crate::limits::{check_key, check_prefix, check_transaction};
use crate::{
    Change, Compare, KeyValue, LeaseId, LeaseStatus, Operation, Range, RangePage, Revision, Store,
    StoreError, Transaction, TransactionOutcome, WatchBatch, WatchStart, WatchStream,
};

/// The maximum number of entries in a page.
const PAGE: usize = 1_000;

/// The handle; clones share everything.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

struct Lease {
    granted: Duration,
    ends: Instant,
}

struct Watcher {
    prefix: String,
    start: Revision,
    sender: mpsc::UnboundedSender<Result<WatchBatch, StoreError>>,
}

#[derive(Default)]
struct State {
    revision: u64,
    /// Revisions up to this one are compacted.
    compacted: u64,
    keys: BTreeMap<String, KeyValue>,
    history: Vec<WatchBatch>,
    watchers: Vec<Watcher>,
    leases: HashMap<LeaseId, Lease>,
    last_lease: i64,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the lease when its time is over. Each renewal postpones that.
    fn end_in_time(&self, lease: LeaseId) {
        let store = Arc::downgrade(&self.state);
        tokio::spawn(async move {
            loop {
                let Some(state) = store.upgrade() else {
                    return;
                };
                let ends = {
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    match state.leases.get(&lease).map(|lease| lease.ends) {
                        None => return,
                        Some(ends) if ends <= Instant::now() => return state.end_lease(lease),
                        Some(ends) => ends,
                    }
                };
                drop(state);
                tokio::time::sleep_until(ends).await;
            }
        });
    }
}

impl State {
    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Absent(key) => !self.keys.contains_key(key),
            Compare::Exists(key) => self.keys.contains_key(key),
            Compare::Modified(key, modified) => {
                let found = self.keys.get(key);
                found.map_or(Revision(0), |found| found.modified) == *modified
            }
            Compare::Version(key, version) => {
                self.keys.get(key).map_or(0, |found| found.version) == *version
            }
            Compare::Value(key, value) => {
                self.keys.get(key).is_some_and(|found| found.value == value)
            }
        }
    }

    fn operate(&mut self, operation: Operation, changes: &mut Vec<Change>) {
        match operation {
            Operation::Put { key, value, lease } => {
                let now = Revision(self.revision + 1);
                let known = self.keys.get(&key);
                let entry = KeyValue {
                    created: known.map_or(now, |known| known.created),
                    version: known.map_or(0, |known| known.version) + 1,
                    modified: now,
                    key: key.clone(),
                    value,
                    lease,
                };
                self.keys.insert(key, entry.clone());
                changes.push(Change::Put(entry));
            }
            Operation::Delete { key } => {
                if self.keys.remove(&key).is_some() {
                    changes.push(Change::Delete { key });
                }
            }
            Operation::DeletePrefix { prefix } => {
                let found = self.keys.range(prefix.clone()..);
                let found = found.take_while(|(key, _)| key.starts_with(&prefix));
                let keys: Vec<String> = found.map(|(key, _)| key.clone()).collect();
                for key in keys {
                    self.keys.remove(&key);
                    changes.push(Change::Delete { key });
                }
            }
        }
    }

    fn record(&mut self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        self.revision += 1;
        let batch = WatchBatch {
            revision: Revision(self.revision),
            changes,
        };
        self.watchers.retain(|watcher| {
            match part(&batch, &watcher.prefix).filter(|batch| batch.revision >= watcher.start) {
                None => !watcher.sender.is_closed(),
                Some(batch) => watcher.sender.unbounded_send(Ok(batch)).is_ok(),
            }
        });
        self.history.push(batch);
    }

    fn end_lease(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let bound = self
            .keys
            .values()
            .filter(|entry| entry.lease == Some(lease));
        let keys: Vec<String> = bound.map(|entry| entry.key.clone()).collect();
        let mut changes = Vec::new();
        for key in keys {
            self.operate(Operation::Delete { key }, &mut changes);
        }
        self.record(changes);
    }
}

/// Returns the part of a batch that is under a prefix.
fn part(batch: &WatchBatch, prefix: &str) -> Option<WatchBatch> {
    let under = |change: &&Change| match change {
        Change::Put(entry) => entry.key.starts_with(prefix),
        Change::Delete { key } => key.starts_with(prefix),
    };
    let changes: Vec<Change> = batch.changes.iter().filter(under).cloned().collect();
    (!changes.is_empty()).then_some(WatchBatch {
        revision: batch.revision,
        changes,
    })
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        check_key(key)?;
        Ok(self.state().keys.get(key).cloned())
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        check_prefix(&range.prefix)?;
        let state = self.state();
        let limit = match range.limit {
            0 => PAGE,
            limit => limit.min(PAGE),
        };
        let start = match &range.after {
            Some(after) if *after >= range.prefix => std::ops::Bound::Excluded(after.clone()),
            _ => std::ops::Bound::Included(range.prefix.clone()),
        };
        let mut found = state
            .keys
            .range((start, std::ops::Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(|entry| entry.key.starts_with(&range.prefix));
        let mut items: Vec<KeyValue> = found.by_ref().take(limit).cloned().collect();
        if range.keys_only {
            items.iter_mut().for_each(|item| item.value.clear());
        }
        Ok(RangePage {
            items,
            more: found.next().is_some(),
            revision: Revision(state.revision),
        })
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        check_transaction(&transaction)?;
        let mut state = self.state();
        if !transaction
            .compares
            .iter()
            .all(|compare| state.holds(compare))
        {
            let reads = transaction.reads_on_failure.iter();
            let read = reads.map(|key| state.keys.get(key).cloned());
            return Ok(TransactionOutcome::Refused(read.collect()));
        }
        for operation in &transaction.operations {
            if let Operation::Put {
                lease: Some(lease), ..
            } = operation
                && !state.leases.contains_key(lease)
            {
                return Err(StoreError::LeaseNotFound(*lease));
            }
        }
        let mut changes = Vec::new();
        for operation in transaction.operations {
            state.operate(operation, &mut changes);
        }
        state.record(changes);
        Ok(TransactionOutcome::Committed(Revision(state.revision)))
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        check_prefix(prefix)?;
        let (sender, receiver) = mpsc::unbounded();
        let mut state = self.state();
        let start = match start {
            WatchStart::Now => Revision(state.revision + 1),
            WatchStart::At(revision) => revision,
        };
        if start.0 <= state.compacted {
            return Err(StoreError::Compacted {
                wanted: start,
                oldest: Revision(state.compacted + 1),
            });
        }
        for batch in state.history.iter().filter(|batch| batch.revision >= start) {
            if let Some(batch) = part(batch, prefix) {
                let _ = sender.unbounded_send(Ok(batch));
            }
        }
        state.watchers.push(Watcher {
            prefix: prefix.to_owned(),
            start,
            sender,
        });
        Ok(Box::pin(receiver))
    }

    async fn lease_grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        if ttl.is_zero() {
            return Err(StoreError::Invalid("a lease needs some time".to_owned()));
        }
        let lease = {
            let mut state = self.state();
            state.last_lease += 1;
            let lease = LeaseId(state.last_lease);
            let ends = Instant::now() + ttl;
            state.leases.insert(lease, Lease { granted: ttl, ends });
            lease
        };
        self.end_in_time(lease);
        Ok(lease)
    }

    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        let mut state = self.state();
        let found = state.leases.get_mut(&lease);
        let found = found.ok_or(StoreError::LeaseNotFound(lease))?;
        found.ends = Instant::now() + found.granted;
        Ok(())
    }

    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let mut state = self.state();
        if !state.leases.contains_key(&lease) {
            return Err(StoreError::LeaseNotFound(lease));
        }
        state.end_lease(lease);
        Ok(())
    }

    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError> {
        let state = self.state();
        let bound = state
            .keys
            .values()
            .filter(|entry| entry.lease == Some(lease));
        let keys = bound.map(|entry| entry.key.clone()).collect();
        Ok(state.leases.get(&lease).map(|found| LeaseStatus {
            granted: found.granted,
            remaining: found.ends.saturating_duration_since(Instant::now()),
            keys,
        }))
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let mut state = self.state();
        if revision.0 > state.revision {
            return Err(StoreError::Invalid(format!(
                "revision {revision} is yet to come"
            )));
        }
        state.compacted = state.compacted.max(revision.0.saturating_sub(1));
        state.history.retain(|batch| batch.revision >= revision);
        Ok(())
    }
}
