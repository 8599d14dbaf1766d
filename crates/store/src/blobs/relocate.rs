//! Moves content to the active place, while everything else goes on.
//!
//! A copy is a new upload like any other. It is read back before the record names it, and the
//! transaction that changes the record compares its value, so it loses to every other change. The
//! old bytes lose their record in that transaction and are removed after it. A read that is under
//! way continues with the new bytes. A crash at any point leaves debris at most, and the content in
//! one place: what is not moved yet is moved by the next call.

use std::sync::atomic::{AtomicBool, Ordering};

use bunraku_model::{ContentId, ContentPlace};
use futures::{StreamExt, TryStreamExt, stream};

use super::BlobError;
use super::manifest::Manifest;
use super::put::Upload;
use super::record::{BlobRecord, record_key, upload_key};
use super::stored::{BlobStore, FoundRecord};
use crate::{Compare, LeaseId, Swap, Transaction, compare_and_swap};

/// The number of contents that are copied at the same time.
const AT_ONCE: usize = 8;

/// The results of one call.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RelocationSummary {
    pub moved: usize,
    pub bytes: u64,
    /// Contents that cannot be moved, and why. They stay where they are.
    pub stuck: Vec<(ContentId, String)>,
}

impl RelocationSummary {
    pub fn add(&mut self, other: Self) {
        self.moved += other.moved;
        self.bytes += other.bytes;
        self.stuck.extend(other.stuck);
    }
}

impl BlobStore {
    pub(super) async fn relocate_share(&self, share: u8) -> Result<RelocationSummary, BlobError> {
        let to = self.places.active();
        let mut records = self.records_of(&format!("{share:02x}")).await?;
        records.retain(|(_, found)| found.record.place != to);
        if records.is_empty() {
            return Ok(RelocationSummary::default());
        }
        let lease = self.store.lease_grant(self.options.pin_for).await?;
        let moving = async {
            let moves = stream::iter(records)
                .map(|(id, found)| self.relocate_content(id, found, to, lease))
                .buffer_unordered(AT_ONCE);
            let add = |mut all: RelocationSummary, one| async {
                all.add(one);
                Ok(all)
            };
            moves.try_fold(RelocationSummary::default(), add).await
        };
        let moved = self.keeping_alive(lease, moving).await;
        // Uploads that were not finished are debris now.
        let _ = self.store.lease_revoke(lease).await;
        moved
    }

    async fn relocate_content(
        &self,
        id: ContentId,
        found: FoundRecord,
        to: ContentPlace,
        lease: LeaseId,
    ) -> Result<RelocationSummary, BlobError> {
        let mut summary = RelocationSummary::default();
        let upload = self.begin(to, lease).await?;
        let moved = async {
            self.copy(id, &found.record, &upload).await?;
            self.point_to_copy(id, &found.record, &upload).await
        };
        match moved.await {
            Ok(true) => {
                self.remove_unneeded(found.record.bytes(id)).await;
                summary.moved = 1;
                summary.bytes = found.record.size;
            }
            // Removed, written again or moved by somebody else in the meantime.
            Ok(false) => {
                self.remove_unneeded(upload.bytes_of(id)).await;
            }
            Err(error) if error.is_damage() || matches!(error, BlobError::TooLarge { .. }) => {
                self.remove_unneeded(upload.bytes_of(id)).await;
                if self.find(id).await?.is_some() {
                    summary.stuck.push((id, error.to_string()));
                }
            }
            // The outcome may be unknown: what is left is cleared away after the lease has ended.
            Err(error) => return Err(error),
        }
        Ok(summary)
    }

    /// Copies the content and reads the copy back.
    async fn copy(
        &self,
        id: ContentId,
        record: &BlobRecord,
        upload: &Upload,
    ) -> Result<(), BlobError> {
        if let Some(limit) = self
            .size_limit(upload.place)?
            .filter(|limit| record.size > *limit)
        {
            return Err(BlobError::TooLarge { limit });
        }
        let place = self.places.get(upload.place)?;
        let mut writer = place.begin(upload.id).await?;
        let mut manifest = Manifest {
            size: 0,
            chunks: Vec::new(),
        };
        // The stream has one item per chunk, and ends only after the hash of the whole matched.
        let mut stream = self.read_whole(id).await?;
        while let Some(bytes) = stream.try_next().await? {
            let hash = ContentId::of(&bytes);
            manifest.size += bytes.len() as u64;
            manifest.chunks.push(hash);
            writer.chunk(hash, bytes).await?;
        }
        writer.finish(id, &manifest).await?;
        self.verify(id, upload.place, upload.id).await
    }

    /// Changes the record to name the copy. Returns `false` if it names other bytes by now.
    async fn point_to_copy(
        &self,
        id: ContentId,
        before: &BlobRecord,
        upload: &Upload,
    ) -> Result<bool, BlobError> {
        let is_tried = AtomicBool::new(false);
        compare_and_swap(&*self.store, |_| async {
            let found = match self.find(id).await? {
                Some(found) if found.record.upload == upload.id => return Ok(Swap::Done(true)),
                Some(found) if found.record.upload == before.upload => found,
                _ => return Ok(Swap::Done(false)),
            };
            if is_tried.swap(true, Ordering::Relaxed)
                && self.store.get(&upload_key(upload.id)).await?.is_none()
            {
                return Err(BlobError::LeaseEnded);
            }
            let copy = BlobRecord {
                upload: upload.id,
                place: upload.place,
                ..found.record.clone()
            };
            let key = record_key(id);
            let transaction = Transaction::new()
                .when(Compare::Exists(upload_key(upload.id)))
                .when(Compare::Value(key.clone(), found.stored.value.clone()))
                .put(key, copy.encode())
                .delete(upload_key(upload.id));
            let transaction = self.places.remove_note(transaction, upload.bytes())?;
            let transaction = self.places.add_note(transaction, found.record.bytes(id))?;
            Ok::<_, BlobError>(Swap::Write(transaction, true))
        })
        .await
    }
}
