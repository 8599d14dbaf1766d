//! The watchers, and the newest revisions in memory.
//!
//! A watcher has no queue, only the first revision that may contain something for it. It reads
//! batches from the shared recent ones, and from history on disk when it has fallen behind those.
//! So one setting bounds the memory, regardless of the number and speed of watchers.
//!
//! A write looks up the prefixes of its keys among the watched prefixes: its cost grows with the
//! number of watchers that it wakes, not with the total number.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::{Change, Revision, StoreError, WatchBatch};

/// The result of a watcher's check for new batches.
pub(super) enum WatchCheck {
    Found(WatchBatch),
    /// The batches are in history on disk, from the first revision up to the second.
    OnDisk(u64, u64),
    Nothing,
    Closed,
}

pub(super) struct Hub {
    state: Mutex<State>,
    recent_bytes: usize,
}

struct State {
    /// The recent batches, without gaps. The last one is `head`.
    recent: VecDeque<(usize, Arc<WatchBatch>)>,
    recent_bytes: usize,
    head: u64,
    oldest: u64,
    watchers: HashMap<String, HashMap<u64, Watcher>>,
    /// The number of watched prefixes by length.
    lengths: BTreeMap<usize, usize>,
    next_watcher: u64,
    closed: bool,
    /// Closed by a writer that had answered all requests it started.
    in_order: bool,
}

struct Watcher {
    wake: Arc<Notify>,
    /// The first revision that may contain something for the watcher.
    pending: Option<u64>,
}

/// A watcher's registration in the hub. It ends when it is dropped.
pub(super) struct Registration {
    hub: Arc<Hub>,
    prefix: String,
    id: u64,
    pub(super) wake: Arc<Notify>,
    /// The first revision that was not checked yet.
    pub(super) next: u64,
}

impl Hub {
    pub(super) fn new(head: u64, oldest: u64, recent_bytes: usize) -> Self {
        Self {
            state: Mutex::new(State {
                recent: VecDeque::new(),
                recent_bytes: 0,
                head,
                oldest,
                watchers: HashMap::new(),
                lengths: BTreeMap::new(),
                next_watcher: 0,
                closed: false,
                in_order: false,
            }),
            recent_bytes,
        }
    }

    /// Registers a watcher from `start` on, or from the next revision on.
    pub(super) fn register(
        self: &Arc<Self>,
        prefix: &str,
        start: Option<Revision>,
    ) -> Result<Registration, StoreError> {
        let mut state = self.lock();
        if state.closed {
            return Err(StoreError::Closed);
        }
        let next = match start {
            None => state.head + 1,
            // Revision 0 does not exist, so it stands for the beginning.
            Some(start) => start.0.max(1),
        };
        if start.is_some() && next < state.oldest {
            return Err(StoreError::Compacted {
                wanted: Revision(next),
                oldest: Revision(state.oldest),
            });
        }
        let id = state.next_watcher;
        state.next_watcher += 1;
        let wake = Arc::new(Notify::new());
        let watcher = Watcher {
            wake: Arc::clone(&wake),
            pending: (next <= state.head).then_some(next),
        };
        state.insert(prefix, id, watcher);
        Ok(Registration {
            hub: Arc::clone(self),
            prefix: prefix.to_owned(),
            id,
            wake,
            next,
        })
    }

    /// Publishes committed revisions, in order, each once.
    pub(super) fn publish(&self, batches: Vec<WatchBatch>) {
        let mut state = self.lock();
        for batch in batches {
            state.head = batch.revision.0;
            state.wake_watchers(&batch);
            let bytes = batch.changes.iter().map(change_bytes).sum();
            state.recent_bytes += bytes;
            state.recent.push_back((bytes, Arc::new(batch)));
        }
        while state.recent_bytes > self.recent_bytes && state.recent.len() > 1 {
            if let Some((bytes, _)) = state.recent.pop_front() {
                state.recent_bytes -= bytes;
            }
        }
    }

    pub(super) fn set_oldest(&self, oldest: u64) {
        self.lock().oldest = oldest;
    }

    pub(super) fn close(&self) {
        self.lock().in_order = true;
        self.abandon();
    }

    /// Ends all watches, regardless of the writer's state.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        for watcher in state.watchers.values().flat_map(HashMap::values) {
            watcher.wake.notify_one();
        }
    }

    pub(super) fn closed_in_order(&self) -> bool {
        self.lock().in_order
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, prefix: &str, id: u64, watcher: Watcher) {
        let same = self.watchers.entry(prefix.to_owned()).or_default();
        if same.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        same.insert(id, watcher);
    }

    fn remove(&mut self, prefix: &str, id: u64) {
        let Some(same) = self.watchers.get_mut(prefix) else {
            return;
        };
        same.remove(&id);
        if !same.is_empty() {
            return;
        }
        self.watchers.remove(prefix);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    fn wake_watchers(&mut self, batch: &WatchBatch) {
        for change in &batch.changes {
            let key = change_key(change);
            for (length, _) in self.lengths.range(..=key.len()) {
                let Some(same) = key
                    .get(..*length)
                    .and_then(|start| self.watchers.get_mut(start))
                else {
                    continue;
                };
                for watcher in same.values_mut() {
                    if watcher.pending.is_none() {
                        watcher.pending = Some(batch.revision.0);
                        watcher.wake.notify_one();
                    }
                }
            }
        }
    }
}

impl Registration {
    /// Returns the next batch for this watcher, if one is in memory.
    pub(super) fn next_batch(&mut self) -> WatchCheck {
        let mut guard = self.hub.lock();
        let state = &mut *guard;
        if state.closed {
            return WatchCheck::Closed;
        }
        let head = state.head;
        let Some(watcher) = state
            .watchers
            .get_mut(&self.prefix)
            .and_then(|same| same.get_mut(&self.id))
        else {
            return WatchCheck::Closed;
        };
        let Some(pending) = watcher.pending else {
            return WatchCheck::Nothing;
        };
        let start = pending.max(self.next);
        let first = head + 1 - state.recent.len() as u64;
        if start <= head && start < first {
            return WatchCheck::OnDisk(start, head);
        }
        let skip = usize::try_from(start - first).unwrap_or(usize::MAX);
        for (_, batch) in state.recent.iter().skip(skip) {
            if let Some(found) = matching(batch, &self.prefix) {
                self.next = found.revision.0 + 1;
                watcher.pending = Some(self.next);
                return WatchCheck::Found(found);
            }
        }
        self.next = start.max(head + 1);
        watcher.pending = None;
        WatchCheck::Nothing
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.hub.lock().remove(&self.prefix, self.id);
    }
}

fn matching(batch: &WatchBatch, prefix: &str) -> Option<WatchBatch> {
    let changes: Vec<Change> = batch
        .changes
        .iter()
        .filter(|change| change_key(change).starts_with(prefix))
        .cloned()
        .collect();
    (!changes.is_empty()).then_some(WatchBatch {
        revision: batch.revision,
        changes,
    })
}

fn change_key(change: &Change) -> &str {
    match change {
        Change::Put(entry) => &entry.key,
        Change::Delete { key } => key,
    }
}

fn change_bytes(change: &Change) -> usize {
    let value = match change {
        Change::Put(entry) => entry.value.len(),
        Change::Delete { .. } => 0,
    };
    change_key(change).len() + value + size_of::<Change>()
}
