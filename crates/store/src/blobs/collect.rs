//! Removes content that nothing refers to, and never anything else.
//!
//! The collector reads the record's revision first, then checks for references. Every later
//! reference writes the record, and the transaction that condemns or removes compares the revision.
//! The clock only determines the length of the grace time: when it jumps, some content is kept for
//! a longer or shorter time, but referenced content is never removed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use bunraku_model::ContentId;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;

use super::BlobError;
use super::key_scan;
use super::place::{StoredUpload, UploadId};
use super::record::{BlobRecord, PINS, RECORDS, REFERENCES, UPLOADS, record_key};
use super::stored::{BlobStore, FoundRecord};
use crate::{Compare, Range, StoreError, Transaction, TransactionOutcome};

/// The number of contents that are checked at the same time.
const AT_ONCE: usize = 16;

/// The results of one collection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CollectionSummary {
    /// Contents without references that got a grace time.
    pub condemned: usize,
    /// Contents removed after their grace time.
    pub removed: usize,
    /// Leftovers of writers that did not finish, cleared away.
    pub debris: usize,
}

/// The action for a content without references.
enum Sentence {
    Condemn,
    Remove,
    Wait,
}

impl BlobStore {
    pub(super) async fn collect_garbage(
        &self,
        now: Timestamp,
    ) -> Result<CollectionSummary, BlobError> {
        let mut collected = CollectionSummary::default();
        let mut uploads = BTreeSet::new();
        // One failure is enough: a place that does not answer would delay each removal.
        let is_failing = AtomicBool::new(false);
        let stored = self.idle_uploads().await?;
        for share in self.shares().await? {
            // Several at a time: each waits for the store more than it works.
            let judged: Vec<CollectionSummary> =
                stream::iter(self.unwanted(&share, &mut uploads).await?)
                    .map(|(id, found)| self.judge(id, found, now, &is_failing))
                    .buffer_unordered(AT_ONCE)
                    .try_collect()
                    .await?;
            for one in judged {
                collected.condemned += one.condemned;
                collected.removed += one.removed;
            }
        }
        collected.debris = self.remove_unnamed(stored, &uploads).await?;
        Ok(collected)
    }

    /// Returns beginnings of ids that together cover all records. Each share is read as a whole,
    /// because etcd visits all keys of a range, even those beyond its limit.
    pub(super) async fn shares(&self) -> Result<Vec<String>, BlobError> {
        let range = Range {
            keys_only: true,
            ..Range::prefix(RECORDS)
        };
        let is_large = self.store.range(range).await?.more;
        Ok(if is_large {
            (0..=u8::MAX).map(|first| format!("{first:02x}")).collect()
        } else {
            vec![String::new()]
        })
    }

    /// Returns the records of a share that nothing refers to. Adds the uploads of all its records
    /// to `uploads`.
    ///
    /// The records are read before the references: a reference that is added later writes the
    /// record, and judging compares its revision.
    async fn unwanted(
        &self,
        share: &str,
        uploads: &mut BTreeSet<UploadId>,
    ) -> Result<Vec<(ContentId, FoundRecord)>, BlobError> {
        let mut records = self.records_of(share).await?;
        uploads.extend(records.iter().map(|(_, found)| found.record.upload));
        if records.is_empty() {
            return Ok(records);
        }
        for prefix in [REFERENCES, PINS] {
            let wanted = key_scan::first_parts(&*self.store, prefix, share).await?;
            records.retain(|(id, _)| !wanted.contains(&id.to_string()));
        }
        Ok(records)
    }

    /// Returns all records whose ids begin with `share`.
    pub(super) async fn records_of(
        &self,
        share: &str,
    ) -> Result<Vec<(ContentId, FoundRecord)>, BlobError> {
        let mut records = Vec::new();
        let mut range = Range::prefix(format!("{RECORDS}{share}"));
        loop {
            let (page, more) = self.record_page(range.clone()).await?;
            range.after = page.last().map(|(id, _)| record_key(*id));
            records.extend(page);
            if !more {
                return Ok(records);
            }
        }
    }

    async fn judge(
        &self,
        id: ContentId,
        found: FoundRecord,
        now: Timestamp,
        is_failing: &AtomicBool,
    ) -> Result<CollectionSummary, BlobError> {
        let mut collected = CollectionSummary::default();
        match self.sentence(&found.record, now) {
            Sentence::Wait => {}
            Sentence::Remove if is_failing.load(Ordering::Relaxed) => {}
            Sentence::Condemn => {
                let condemned = BlobRecord {
                    condemned: Some(now),
                    ..found.record.clone()
                };
                let key = record_key(id);
                let transaction = unchanged(id, &found).put(key, condemned.encode());
                collected.condemned += usize::from(self.try_commit(transaction).await?);
            }
            Sentence::Remove => {
                let transaction = unchanged(id, &found).delete(record_key(id));
                let bytes = found.record.bytes(id);
                let transaction = self.places.add_note(transaction, bytes)?;
                if self.try_commit(transaction).await? {
                    // If this line is never reached, the bytes are debris.
                    if !self.remove_unneeded(bytes).await {
                        is_failing.store(true, Ordering::Relaxed);
                    }
                    collected.removed += 1;
                }
            }
        }
        Ok(collected)
    }

    fn sentence(&self, record: &BlobRecord, now: Timestamp) -> Sentence {
        match record.condemned {
            None => Sentence::Condemn,
            // The clock went back: count from now, or the content would stay for ever.
            Some(since) if since > now => Sentence::Condemn,
            Some(since) => {
                let waited = now.duration_since(since).unsigned_abs();
                if waited >= self.options.grace {
                    Sentence::Remove
                } else {
                    Sentence::Wait
                }
            }
        }
    }

    /// Returns whether the transaction was committed. If that is unknown, the next collection finds
    /// out.
    async fn try_commit(&self, transaction: Transaction) -> Result<bool, BlobError> {
        match self.store.commit(transaction).await {
            Ok(TransactionOutcome::Committed(_)) => Ok(true),
            Ok(TransactionOutcome::Refused(_)) | Err(StoreError::OutcomeUnknown(_)) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    /// Removes bytes that no record names and that no writer is writing.
    pub(super) async fn clear_debris(&self) -> Result<usize, BlobError> {
        let stored = self.idle_uploads().await?;
        if stored.is_empty() {
            return Ok(0);
        }
        let named = self.named_uploads().await?;
        self.remove_unnamed(stored, &named).await
    }

    /// Returns the stored bytes that no writer is writing.
    ///
    /// The order of three reads matters: the stored bytes, then the uploads in progress, then the
    /// records. An upload that is no longer in progress has its record already, or never gets one.
    async fn idle_uploads(&self) -> Result<Vec<StoredUpload>, BlobError> {
        let mut stored = self.places.stored().await?;
        let under_way = self.uploads_under_way().await?;
        stored.retain(|stored| !under_way.contains(&stored.upload));
        Ok(stored)
    }

    async fn remove_unnamed(
        &self,
        stored: Vec<StoredUpload>,
        named: &BTreeSet<UploadId>,
    ) -> Result<usize, BlobError> {
        let mut cleared = 0;
        for stored in stored {
            if !named.contains(&stored.upload) {
                self.places.remove(stored).await?;
                cleared += 1;
            }
        }
        Ok(cleared)
    }

    async fn uploads_under_way(&self) -> Result<BTreeSet<UploadId>, BlobError> {
        let mut under_way = BTreeSet::new();
        let mut range = Range {
            keys_only: true,
            ..Range::prefix(UPLOADS)
        };
        loop {
            let page = self.store.range(range.clone()).await?;
            range.after = page.items.last().map(|item| item.key.clone());
            let names = page.items.iter().map(|item| &item.key[UPLOADS.len()..]);
            under_way.extend(names.filter_map(UploadId::parse));
            if !page.more {
                return Ok(under_way);
            }
        }
    }

    async fn named_uploads(&self) -> Result<BTreeSet<UploadId>, BlobError> {
        let (mut named, mut after) = (BTreeSet::new(), None);
        loop {
            let page = self.records(after).await?;
            let Some((last, _)) = page.last() else {
                return Ok(named);
            };
            after = Some(*last);
            named.extend(page.iter().map(|(_, found)| found.record.upload));
        }
    }
}

fn unchanged(id: ContentId, found: &FoundRecord) -> Transaction {
    Transaction::new().when(Compare::Modified(record_key(id), found.stored.modified))
}
