//! Removes catalogs that nothing holds, and never any other.

use bunraku_model::CatalogId;
use bunraku_store::{Range, StoreError, Transaction, TransactionOutcome, settle};
use futures::{StreamExt, TryStreamExt, stream};

use super::record::{Record, State};
use super::{CatalogError, Catalogs};
use bunraku_control::document::{self, Versioned};
use bunraku_control::keys;

/// Number of catalogs checked, and references removed, concurrently.
const AT_ONCE: usize = 16;

/// The result of one collection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CollectedCatalogs {
    /// Catalogs found without holders, which now have a grace period.
    pub condemned: usize,
    /// Catalogs removed after the grace period.
    pub removed: usize,
}

impl Catalogs {
    /// Condemns catalogs that nothing holds, and removes those whose grace
    /// period is over. Safe at any time, on any number of servers at once.
    /// Content is removed later, when the blobs are collected.
    pub async fn collect(&self) -> Result<CollectedCatalogs, CatalogError> {
        let mut collected = CollectedCatalogs::default();
        let mut range = Range::prefix(keys::CATALOGS);
        loop {
            let page = self.store.range(range.clone()).await?;
            range.after = page.items.last().map(|item| item.key.clone());
            let mut entries = Vec::with_capacity(page.items.len());
            for entry in page.items {
                let Some(id) = keys::parse_catalog(&entry.key) else {
                    continue;
                };
                let document = document::decode(&entry)?;
                entries.push((id, Versioned { document, entry }));
            }
            let mut judged = stream::iter(entries)
                .map(|(id, found)| self.judge(id, found))
                .buffer_unordered(AT_ONCE);
            while let Some(one) = judged.try_next().await? {
                collected.condemned += one.condemned;
                collected.removed += one.removed;
            }
            if !page.more {
                return Ok(collected);
            }
        }
    }

    async fn judge(
        &self,
        id: CatalogId,
        found: Versioned<Record>,
    ) -> Result<CollectedCatalogs, CatalogError> {
        let mut collected = CollectedCatalogs::default();
        if let State::Removing { .. } = found.document.state {
            self.finish_removal(id, &found).await?;
            collected.removed += 1;
            return Ok(collected);
        }
        // The record was read first: a hold created after this check writes the record.
        if self.is_held(id).await? {
            return Ok(collected);
        }
        let now = self.clock.now();
        let next = match found.document.condemned {
            // The clock went back: count from now, or the catalog would stay forever.
            Some(since) if since <= now => {
                if now.duration_since(since).unsigned_abs() < self.options.grace {
                    return Ok(collected);
                }
                self.removing(&found.document)
            }
            _ => Record {
                condemned: Some(now),
                ..found.document.clone()
            },
        };
        let Some(entry) = self.replace(id, &found, &next).await? else {
            return Ok(collected);
        };
        if let State::Removing { .. } = next.state {
            let document = next;
            self.finish_removal(id, &Versioned { document, entry })
                .await?;
            collected.removed += 1;
        } else {
            collected.condemned += 1;
        }
        Ok(collected)
    }

    pub(super) fn removing(&self, record: &Record) -> Record {
        let content = match record.state {
            State::Kept { content, .. } => Some(content),
            State::Writing | State::Removing { .. } => None,
        };
        Record {
            state: State::Removing { content },
            ..record.clone()
        }
    }

    async fn is_held(&self, id: CatalogId) -> Result<bool, CatalogError> {
        let range = Range {
            limit: 1,
            keys_only: true,
            ..Range::prefix(keys::catalog_holds(id))
        };
        Ok(!self.store.range(range).await?.items.is_empty())
    }

    /// Writes the next record if it has not been written since. Does nothing if
    /// it has, or if the outcome is unknown: the next collection handles it.
    pub(super) async fn replace(
        &self,
        id: CatalogId,
        found: &Versioned<Record>,
        next: &Record,
    ) -> Result<Option<bunraku_store::KeyValue>, CatalogError> {
        let key = keys::catalog(id);
        let value = document::encode(next);
        let transaction = Transaction::new()
            .when_unchanged(&key, Some(&found.entry))
            .put(key, value.clone());
        match self.store.commit(transaction).await {
            Ok(TransactionOutcome::Committed(revision)) => Ok(Some(bunraku_store::KeyValue {
                value,
                modified: revision,
                version: found.entry.version + 1,
                ..found.entry.clone()
            })),
            Ok(TransactionOutcome::Refused(_)) | Err(StoreError::OutcomeUnknown(_)) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Removes the references, then the record. Any server that finds a record
    /// in this state may do this, even twice.
    pub(super) async fn finish_removal(
        &self,
        id: CatalogId,
        found: &Versioned<Record>,
    ) -> Result<(), CatalogError> {
        let referrer = found.document.referrer(id);
        let contents: Vec<_> = found.document.contents().collect();
        stream::iter(contents)
            .map(|content| self.blobs.unreference(content, &referrer))
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        let key = keys::catalog(id);
        let transaction = Transaction::new()
            .when_unchanged(&key, Some(&found.entry))
            .delete(key);
        settle(&*self.store, transaction).await?;
        Ok(())
    }
}
