//! Reading the chain forwards: a stretch of it, or for ever.

use bunraku_store::{Follow, Range, SharedStore};
use bytes::Bytes;

use super::AuditLog;
use super::stored::{MOST_LINES, StoredLines, read_head};
use crate::{ServiceError, keys};

/// The keys that are read at a time.
const KEYS: usize = 50;

/// A stretch of the chain, oldest line first.
pub struct AuditLines {
    store: SharedStore,
    /// The number of the next line.
    next: u64,
    /// The number of the last line.
    last: u64,
    /// The last key that was read.
    after: Option<String>,
}

impl AuditLines {
    /// All lines after a number, up to another one.
    pub(super) fn new(store: SharedStore, after: u64, last: u64) -> Self {
        // A key has many lines, so the first of these may be in an earlier key.
        let from = (after + 1).saturating_sub(MOST_LINES as u64);
        Self {
            store,
            next: after + 1,
            last,
            after: Some(keys::audit_records(from)),
        }
    }

    /// Returns the next lines, without their line breaks; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>, ServiceError> {
        while self.next <= self.last {
            let range = Range {
                after: self.after.clone(),
                limit: KEYS,
                ..Range::prefix(keys::AUDIT_RECORDS)
            };
            let page = self.store.range(range).await?;
            let Some(newest) = page.items.last() else {
                return Ok(None);
            };
            self.after = Some(newest.key.clone());
            let mut lines = Vec::new();
            for entry in &page.items {
                let stored = StoredLines::read(entry)?;
                for (number, line) in (stored.first..).zip(stored.lines) {
                    if number >= self.next && number <= self.last {
                        lines.push(line);
                        self.next = number + 1;
                    }
                }
            }
            if !lines.is_empty() {
                return Ok(Some(lines));
            }
        }
        Ok(None)
    }
}

/// The chain as it grows.
pub struct AuditFollow {
    log: AuditLog,
    head: Follow,
    /// The number of the last line that was returned.
    last: u64,
    lines: Option<AuditLines>,
}

impl AuditFollow {
    /// Returns the next lines. Waits as long as it takes.
    pub async fn next(&mut self) -> Result<Vec<Bytes>, ServiceError> {
        loop {
            if let Some(lines) = &mut self.lines {
                let some = lines.next().await?;
                // Records that were deleted meanwhile are skipped.
                self.last = lines.next - 1;
                match some {
                    Some(some) => return Ok(some),
                    None => self.lines = None,
                }
            }
            self.head.next().await?;
            let newest = self.log.newest_number().await?;
            if newest > self.last {
                self.lines = Some(AuditLines::new(self.log.store.clone(), self.last, newest));
            }
        }
    }
}

impl AuditLog {
    /// Returns the number of the newest record.
    pub(super) async fn newest_number(&self) -> Result<u64, ServiceError> {
        let head = read_head(&*self.store).await?;
        Ok(head.map_or(0, |head| head.document.newest.number))
    }

    /// Returns all lines after a number, up to now.
    pub async fn lines_after(&self, after: u64) -> Result<AuditLines, ServiceError> {
        let head = read_head(&*self.store).await?;
        let (first, last) = head.map_or((1, 0), |head| {
            (head.document.first, head.document.newest.number)
        });
        let after = after.max(first.saturating_sub(1));
        Ok(AuditLines::new(self.store.clone(), after, last))
    }

    /// Follows the chain after a number; by default, from now on.
    pub async fn follow(&self, after: Option<u64>) -> Result<AuditFollow, ServiceError> {
        let head = read_head(&*self.store).await?;
        let (first, newest) = head.map_or((1, 0), |head| {
            (head.document.first, head.document.newest.number)
        });
        let last = after.unwrap_or(newest).max(first.saturating_sub(1));
        Ok(AuditFollow {
            log: self.clone(),
            head: Follow::new(self.store.clone(), keys::AUDIT_HEAD),
            last,
            lines: None,
        })
    }
}
