//! Everything under a prefix, and then all changes to it.
//!
//! Services use [`Follow`]. It returns the existing keys, then changes, and recovers from problems
//! that a bare watch leaves to its reader: a broken connection, and compacted history. Then it
//! reads everything again and returns only the differences from what it returned before. Its
//! consumer misses no key's newest state and sees no change twice; intermediate states may be
//! skipped only when history was gone.
//!
//! It keeps the key and the revision of everything under the prefix, but no values.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use crate::{
    Change, KeyValue, Range, Revision, SharedStore, StoreError, WatchBatch, WatchStart, WatchStream,
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A result of [`Follow::next`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FollowEvent {
    /// Everything under the prefix, once and first. If it took several pages, later keys may
    /// already be newer than `revision`. Changes that happen to earlier keys meanwhile follow as
    /// changes.
    Snapshot {
        items: Vec<KeyValue>,
        revision: Revision,
    },
    /// Changes, in order of revision. After a gap in history, one batch holds all differences, read
    /// like a snapshot.
    Changes(WatchBatch),
}

impl FollowEvent {
    /// Returns the existing or written entries, for consumers that do not care about deletions.
    pub fn into_puts(self) -> Vec<KeyValue> {
        match self {
            Self::Snapshot { items, .. } => items,
            Self::Changes(batch) => {
                let puts = batch.changes.into_iter().filter_map(|change| match change {
                    Change::Put(entry) => Some(entry),
                    Change::Delete { .. } => None,
                });
                puts.collect()
            }
        }
    }
}

/// One consumer's view of a prefix.
pub struct Follow {
    store: SharedStore,
    prefix: String,
    /// The revision of each key's last change, as the consumer knows it. `None`: nothing was
    /// returned yet.
    known: Option<BTreeMap<String, Revision>>,
    /// The state that the last full read already showed.
    shown: ReadRevisions,
    stream: Option<WatchStream>,
    /// The first revision that the watch has not returned.
    next: Revision,
    must_read: bool,
    failures: u32,
    pause_until: Option<Instant>,
}

impl Follow {
    pub fn new(store: SharedStore, prefix: impl Into<String>) -> Self {
        Self {
            store,
            prefix: prefix.into(),
            known: None,
            shown: ReadRevisions::default(),
            stream: None,
            next: Revision(0),
            must_read: true,
            failures: 0,
            pause_until: None,
        }
    }

    /// Returns the snapshot, then changes, for ever. Waits as long as it takes.
    ///
    /// An error is one that waiting cannot fix; the next call tries again. May be cancelled at any
    /// time without losing anything.
    pub async fn next(&mut self) -> Result<FollowEvent, StoreError> {
        loop {
            if let Some(until) = self.pause_until {
                tokio::time::sleep_until(until).await;
                self.pause_until = None;
            }
            match self.step().await {
                Ok(followed) => {
                    self.failures = 0;
                    if let Some(followed) = followed {
                        return Ok(followed);
                    }
                }
                Err(error) => self.handle_error(error)?,
            }
        }
    }

    async fn step(&mut self) -> Result<Option<FollowEvent>, StoreError> {
        if self.must_read {
            return self.read().await;
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let start = WatchStart::At(self.next);
                let stream = self.store.watch(&self.prefix, start).await?;
                self.stream.insert(stream)
            }
        };
        match stream.next().await {
            Some(batch) => Ok(self.accept(batch?)),
            None => Err(StoreError::Unavailable("the watch ended".into())),
        }
    }

    fn handle_error(&mut self, error: StoreError) -> Result<(), StoreError> {
        self.stream = None;
        match error {
            StoreError::Compacted { .. } => self.must_read = true,
            StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) | StoreError::Io { .. } => {}
            lasting => return Err(lasting),
        }
        tracing::debug!(
            prefix = self.prefix,
            error = &error as &dyn std::error::Error,
            "following again"
        );
        self.pause_until = Some(Instant::now() + pause(self.failures));
        self.failures = self.failures.saturating_add(1);
        Ok(())
    }

    /// Leaves out changes that the last full read already showed.
    fn accept(&mut self, batch: WatchBatch) -> Option<FollowEvent> {
        let revision = batch.revision;
        self.next = Revision(revision.0 + 1);
        let mut changes = batch.changes;
        changes.retain(|change| !self.shown.covers(key_of(change), revision));
        self.shown.forget_before(self.next);
        if changes.is_empty() {
            return None;
        }
        let known = self.known.get_or_insert_default();
        for change in &changes {
            match change {
                Change::Put(entry) => known.insert(entry.key.clone(), entry.modified),
                Change::Delete { key } => known.remove(key),
            };
        }
        Some(FollowEvent::Changes(WatchBatch { revision, changes }))
    }

    /// Reads everything. Returns all of it the first time, and the differences later.
    async fn read(&mut self) -> Result<Option<FollowEvent>, StoreError> {
        let (items, shown) = read_pages(&self.store, &self.prefix).await?;
        let revision = shown.earliest();
        let now = items
            .iter()
            .map(|entry| (entry.key.clone(), entry.modified))
            .collect();
        let before = self.known.replace(now);
        self.shown = shown;
        self.next = Revision(revision.0 + 1);
        self.stream = None;
        self.must_read = false;
        Ok(match before {
            None => Some(FollowEvent::Snapshot { items, revision }),
            Some(before) => {
                let changes = differences(before, items);
                (!changes.is_empty())
                    .then_some(FollowEvent::Changes(WatchBatch { revision, changes }))
            }
        })
    }
}

async fn read_pages(
    store: &SharedStore,
    prefix: &str,
) -> Result<(Vec<KeyValue>, ReadRevisions), StoreError> {
    let mut items: Vec<KeyValue> = Vec::new();
    let mut shown = ReadRevisions::default();
    loop {
        let page = store
            .range(Range {
                after: items.last().map(|entry| entry.key.clone()),
                ..Range::prefix(prefix)
            })
            .await?;
        items.extend(page.items);
        let up_to = items.last().filter(|_| page.more);
        shown
            .pages
            .push((up_to.map(|entry| entry.key.clone()), page.revision));
        if !page.more {
            return Ok((items, shown));
        }
    }
}

fn differences(mut before: BTreeMap<String, Revision>, items: Vec<KeyValue>) -> Vec<Change> {
    let mut puts = Vec::new();
    for entry in items {
        if before.remove(&entry.key) != Some(entry.modified) {
            puts.push(Change::Put(entry));
        }
    }
    let mut changes: Vec<Change> = before
        .into_keys()
        .map(|key| Change::Delete { key })
        .collect();
    changes.append(&mut puts);
    changes
}

/// The revision at which each part of the keys was read. Pages are read one after the other; the
/// watch begins at the revision of the first.
#[derive(Default)]
struct ReadRevisions {
    /// The last key of each page (`None`: all remaining keys) and its revision.
    pages: Vec<(Option<String>, Revision)>,
}

impl ReadRevisions {
    /// Returns the start of the watch: the earliest revision of all pages. That is the first
    /// page's, unless the pages came from datastores that differ (see [`crate::stale`]).
    fn earliest(&self) -> Revision {
        let read = self.pages.iter().map(|page| page.1);
        read.min().unwrap_or(Revision(0))
    }

    fn covers(&self, key: &str, revision: Revision) -> bool {
        let page = self
            .pages
            .iter()
            .find(|(last, _)| last.as_deref().is_none_or(|last| key <= last));
        page.is_some_and(|(_, read)| revision <= *read)
    }

    fn forget_before(&mut self, next: Revision) {
        if self.pages.iter().all(|(_, read)| *read < next) {
            self.pages.clear();
        }
    }
}

fn key_of(change: &Change) -> &str {
    match change {
        Change::Put(entry) => &entry.key,
        Change::Delete { key } => key,
    }
}

/// Returns a pause that doubles with each failure in a row. It is random, so that clients of a lost
/// server do not all connect to the next one at once.
fn pause(failures: u32) -> Duration {
    let longest = FIRST_PAUSE
        .saturating_mul(1 << failures.min(10))
        .min(LONGEST_PAUSE);
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    longest.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_PAUSE, ReadRevisions, pause};
    use crate::Revision;

    #[test]
    fn each_page_covers_its_own_keys_up_to_its_own_revision() {
        let mut shown = ReadRevisions {
            pages: vec![(Some("f".to_owned()), Revision(10)), (None, Revision(20))],
        };
        assert!(shown.covers("a", Revision(10)));
        assert!(!shown.covers("a", Revision(11)));
        assert!(shown.covers("f", Revision(10)));
        assert!(shown.covers("g", Revision(20)));
        assert!(!shown.covers("g", Revision(21)));
        shown.forget_before(Revision(20));
        assert!(shown.covers("g", Revision(20)));
        shown.forget_before(Revision(21));
        assert!(!shown.covers("g", Revision(20)));
    }

    #[test]
    fn a_page_of_a_datastore_that_lags_behind_is_followed_from_where_it_was() {
        let mut shown = ReadRevisions {
            pages: vec![(Some("f".to_owned()), Revision(20)), (None, Revision(10))],
        };
        assert_eq!(shown.earliest(), Revision(10));
        assert!(!shown.covers("g", Revision(11)));
        shown.forget_before(Revision(12));
        assert!(shown.covers("a", Revision(20)), "it was shown already");
    }

    #[test]
    fn pauses_stay_bounded_however_often_it_fails() {
        for failures in [0, 1, 5, 10, 11, 31, 32, u32::MAX] {
            assert!(pause(failures) <= LONGEST_PAUSE);
        }
    }
}
