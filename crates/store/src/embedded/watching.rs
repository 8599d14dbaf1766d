//! One watch: recent batches from memory, older ones from disk.

use std::collections::VecDeque;
use std::sync::Arc;

use rusqlite::Connection;

use super::failure::Failure;
use super::hub::{Registration, WatchCheck};
use super::readers::Readers;
use super::rows;
use crate::{Change, Revision, StoreError, WatchBatch, WatchStream};

/// A page of history ends with the revision in which it reaches one of these limits.
const PAGE_CHANGES: usize = 256;
const PAGE_BYTES: usize = 256 * 1024;

struct WatchState {
    registration: Registration,
    prefix: String,
    readers: Arc<Readers>,
    page: VecDeque<WatchBatch>,
}

/// Returns the batches of one registered watcher.
pub(super) fn stream(
    registration: Registration,
    prefix: String,
    readers: Arc<Readers>,
) -> WatchStream {
    let watching = WatchState {
        registration,
        prefix,
        readers,
        page: VecDeque::new(),
    };
    Box::pin(futures::stream::unfold(
        Some(watching),
        |watching| async move {
            let mut watching = watching?;
            match watching.next().await {
                Ok(batch) => Some((Ok(batch), Some(watching))),
                Err(error) => Some((Err(error), None)),
            }
        },
    ))
}

impl WatchState {
    async fn next(&mut self) -> Result<WatchBatch, StoreError> {
        loop {
            if let Some(batch) = self.page.pop_front() {
                return Ok(batch);
            }
            match self.registration.next_batch() {
                WatchCheck::Found(batch) => return Ok(batch),
                WatchCheck::Nothing => self.registration.wake.notified().await,
                WatchCheck::OnDisk(first, last) => self.read_page(first, last).await?,
                WatchCheck::Closed => return Err(StoreError::Closed),
            }
        }
    }

    async fn read_page(&mut self, first: u64, last: u64) -> Result<(), StoreError> {
        let prefix = self.prefix.clone();
        let page = self
            .readers
            .read(move |connection| read_history(connection, &prefix, first, last))
            .await??;
        self.page = page.batches;
        self.registration.next = page.through + 1;
        Ok(())
    }
}

struct Page {
    batches: VecDeque<WatchBatch>,
    /// The page contains everything up to this revision.
    through: u64,
}

fn read_history(
    connection: &Connection,
    prefix: &str,
    first: u64,
    last: u64,
) -> Result<Result<Page, StoreError>, Failure> {
    let oldest = rows::oldest_revision(connection)?;
    if first < oldest {
        return Ok(Err(StoreError::Compacted {
            wanted: Revision(first),
            oldest: Revision(oldest),
        }));
    }
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {} FROM history WHERE id >= ?1 AND id < ?2 AND key >= ?3 AND key < ?4 ORDER BY id",
        rows::HISTORY_COLUMNS
    ))?;
    let (start, end) = rows::bounds(prefix);
    let ids = (rows::history_id(first, 0), rows::history_id(last + 1, 0));
    let mut found = statement.query((ids.0, ids.1, start, end))?;
    let mut page = Page {
        batches: VecDeque::new(),
        through: last,
    };
    let (mut changes, mut bytes) = (0, 0);
    while let Some(row) = found.next()? {
        let (revision, change) = rows::read_history(row)?;
        let full = changes >= PAGE_CHANGES || bytes >= PAGE_BYTES;
        match page.batches.back_mut() {
            Some(batch) if batch.revision.0 == revision => {
                bytes += value_bytes(&change);
                batch.changes.push(change);
            }
            Some(batch) if full => {
                page.through = batch.revision.0;
                break;
            }
            _ => {
                bytes += value_bytes(&change);
                page.batches.push_back(WatchBatch {
                    revision: Revision(revision),
                    changes: vec![change],
                });
            }
        }
        changes += 1;
    }
    Ok(Ok(page))
}

fn value_bytes(change: &Change) -> usize {
    match change {
        Change::Put(entry) => entry.value.len(),
        Change::Delete { .. } => 0,
    }
}
