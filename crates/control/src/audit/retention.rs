//! Old records: packed, and deleted at their age.
//!
//! A deletion appends a checkpoint: the record with which the log begins now, and the hash that it
//! continues. So the rest of the chain stays verifiable, and a log whose beginning somebody else
//! removed does not.

use bunraku_model::audit_line_hash;
use bunraku_store::{KeyValue, Range, Transaction, settle};
use bunraku_wire::api::{AuditCheckpoint, AuditOutcome, AuditRecord};
use jiff::Timestamp;

use super::stored::{MOST_LINES, StoredLines, pack, read_head};
use super::{AuditAction, AuditLog};
use crate::document;
use crate::{ServiceError, keys};

/// The keys that one transaction deletes or packs.
const KEYS: usize = 100;
/// The fewest keys that are worth packing.
const FEWEST: usize = 20;
/// The newest records, which stay unpacked.
const UNPACKED: u64 = 500;
/// The largest size of the lines that are packed together.
const PACKED_BYTES: usize = 1 << 20;

impl AuditLog {
    /// Deletes records that are too old, and packs those that are not new.
    pub async fn prune_and_pack(&self) -> Result<(), ServiceError> {
        while self.prune_some().await? {}
        let mut after = None;
        while let Some(next) = self.pack_some(after).await? {
            after = Some(next);
        }
        Ok(())
    }

    /// Deletes some records that are too old. Returns whether there may be more.
    async fn prune_some(&self) -> Result<bool, ServiceError> {
        let Ok(limit) = self.clock.now().checked_sub(self.shared.options.keep) else {
            return Ok(false);
        };
        let Some(known) = read_head(&*self.store).await? else {
            return Ok(false);
        };
        let (mut head, entry) = (known.document, known.entry);
        let mut old: Vec<(String, StoredLines)> = Vec::new();
        for found in self.keys_after(None).await? {
            let stored = StoredLines::read(&found)?;
            // The newest record stays, so that the chain has an end.
            if stored.last() >= head.newest.number || !is_older(&stored, limit) {
                break;
            }
            old.push((found.key, stored));
        }
        let Some((last_line, kept)) = old.last().and_then(|(_, stored)| {
            let line = stored.lines.last()?;
            Some((line.clone(), stored.last() + 1))
        }) else {
            return Ok(false);
        };
        let deleted = kept - head.first;
        let action = AuditAction::new("delete-old-audit-records").detail("deleted", deleted);
        let mut record = self.entry(action, AuditOutcome::Succeeded.into());
        head.first = kept;
        head.first_previous = audit_line_hash(&last_line);
        record.checkpoint = Some(AuditCheckpoint {
            first: head.first,
            previous: head.first_previous.clone(),
        });
        let line = head.append(record);
        let mut transaction = Transaction::new()
            .when_unchanged(keys::AUDIT_HEAD, Some(&entry))
            .put(keys::AUDIT_HEAD, document::encode(&head))
            .put(keys::audit_records(head.newest.number), format!("{line}\n"));
        for (key, _) in &old {
            transaction = transaction.delete(key.clone());
        }
        settle(&*self.store, transaction).await?;
        Ok(true)
    }

    /// Packs some keys into one. Returns the key to go on after.
    async fn pack_some(&self, after: Option<String>) -> Result<Option<String>, ServiceError> {
        let Some(head) = read_head(&*self.store).await? else {
            return Ok(None);
        };
        let limit = head.document.newest.number.saturating_sub(UNPACKED);
        let page = self.keys_after(after).await?;
        let Some(last) = page.last().map(|entry| entry.key.clone()) else {
            return Ok(None);
        };
        let (mut chosen, mut lines, mut bytes) = (Vec::new(), Vec::new(), 0);
        for found in page {
            let stored = StoredLines::read(&found)?;
            let size: usize = stored.lines.iter().map(bytes::Bytes::len).sum();
            let is_full =
                lines.len() + stored.lines.len() > MOST_LINES || bytes + size > PACKED_BYTES;
            if stored.is_packed && chosen.is_empty() {
                continue;
            }
            if stored.is_packed || is_full || stored.last() >= limit {
                break;
            }
            bytes += size;
            lines.extend(stored.lines);
            chosen.push(found);
        }
        match chosen.as_slice() {
            [] => Ok((keys::parse_audit_records(&last) < Some(limit)).then_some(last)),
            [first, .., end] if chosen.len() >= FEWEST => {
                let mut transaction = Transaction::new();
                for found in &chosen {
                    transaction = transaction.when_unchanged(&found.key, Some(found));
                }
                transaction = transaction.put(first.key.clone(), pack(lines.iter()));
                for found in &chosen[1..] {
                    transaction = transaction.delete(found.key.clone());
                }
                settle(&*self.store, transaction).await?;
                Ok(Some(end.key.clone()))
            }
            // Large batches need no packing with others.
            [.., end] if lines.len() * 2 > MOST_LINES || bytes * 2 > PACKED_BYTES => {
                Ok(Some(end.key.clone()))
            }
            _ => Ok(None),
        }
    }

    async fn keys_after(&self, after: Option<String>) -> Result<Vec<KeyValue>, ServiceError> {
        let range = Range {
            after,
            limit: KEYS,
            ..Range::prefix(keys::AUDIT_RECORDS)
        };
        Ok(self.store.range(range).await?.items)
    }
}

/// Returns whether all records of a key are older than this.
fn is_older(stored: &StoredLines, limit: Timestamp) -> bool {
    stored.lines.iter().all(|line| {
        serde_json::from_slice::<AuditRecord>(line).is_ok_and(|record| record.entry.at < limit)
    })
}
