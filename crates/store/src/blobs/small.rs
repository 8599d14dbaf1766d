//! Writes content of one chunk at most with as few requests as possible.
//!
//! In a place that is in the store, bytes and record appear in one transaction, so a crash leaves no
//! debris. In other places, content that already exists is only pinned.

use std::sync::atomic::{AtomicBool, Ordering};

use bunraku_model::{ContentId, ContentPlace};
use bytes::Bytes;

use super::manifest::Manifest;
use super::place::UploadId;
use super::record::{BlobRecord, record_key};
use super::refer::{Pin, add_conditions, new_pin_key};
use super::stored::{BlobStore, FoundRecord};
use super::{BlobError, BlobInfo, PinnedBlob};
use crate::{Compare, LeaseId, Swap, Transaction, compare_and_swap};

/// A small content that is being written.
struct SmallBlob {
    info: BlobInfo,
    upload: UploadId,
    /// The keys and values of its bytes.
    values: Vec<(String, Bytes)>,
    pin: String,
    lease: LeaseId,
}

impl BlobStore {
    /// Writes and pins the content. Returns `None` if it has to be uploaded.
    pub(super) async fn write_small(
        &self,
        bytes: &Bytes,
        expected: Option<ContentId>,
    ) -> Result<Option<PinnedBlob>, BlobError> {
        let (id, size) = (ContentId::of(bytes), bytes.len() as u64);
        let chunks = if bytes.is_empty() { vec![] } else { vec![id] };
        let upload = UploadId::new();
        let manifest = Manifest { size, chunks };
        let place = self.places.active();
        if let Some(limit) = self.size_limit(place)?.filter(|limit| size > *limit) {
            return Err(BlobError::TooLarge { limit });
        }
        if let Some(expected) = expected.filter(|expected| *expected != id) {
            return Err(BlobError::Mismatch {
                expected,
                found: id,
            });
        }
        let info = BlobInfo { id, size };
        let values = self.places.get(place)?.as_values(upload, bytes, &manifest);
        let Some(values) = values else {
            return self.pin_existing(info).await;
        };
        let blob = SmallBlob {
            info,
            upload,
            values,
            pin: new_pin_key(id),
            lease: self.store.lease_grant(self.options.pin_for).await?,
        };
        match self.register_small(&blob).await {
            Ok(()) => Ok(Some(PinnedBlob {
                info: blob.info,
                pin: Pin {
                    id,
                    lease: blob.lease,
                    store: self.store.clone(),
                },
            })),
            Err(error) => {
                let _ = self.store.lease_revoke(blob.lease).await;
                Err(error)
            }
        }
    }

    /// Pins the content if it exists and is sound.
    async fn pin_existing(&self, info: BlobInfo) -> Result<Option<PinnedBlob>, BlobError> {
        let Some(found) = self.find(info.id).await? else {
            return Ok(None);
        };
        if !self.is_sound(info, &found.record).await? {
            return Ok(None);
        }
        match self.take_pin(info.id).await {
            Ok(pin) => Ok(Some(PinnedBlob { info, pin })),
            // Removed or found damaged in the meantime.
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Publishes the content and pins it. If it already exists and is sound, it is only pinned;
    /// otherwise it is replaced.
    async fn register_small(&self, blob: &SmallBlob) -> Result<(), BlobError> {
        let is_tried = AtomicBool::new(false);
        let replaced = compare_and_swap(&*self.store, |_| async {
            // An attempt with an unknown outcome may have succeeded after all.
            if is_tried.swap(true, Ordering::Relaxed) && self.store.get(&blob.pin).await?.is_some()
            {
                return Ok(Swap::Done(None));
            }
            let found = self.find(blob.info.id).await?;
            let keep_theirs = match &found {
                Some(found) => self.is_sound(blob.info, &found.record).await?,
                None => false,
            };
            let transaction = blob.registration(found.as_ref(), keep_theirs);
            let unneeded = found.filter(|_| !keep_theirs);
            let unneeded = unneeded.map(|found| found.record.bytes(blob.info.id));
            let transaction = match unneeded {
                Some(unneeded) => self.places.add_note(transaction, unneeded)?,
                None => transaction,
            };
            Ok::<_, BlobError>(Swap::Write(transaction, unneeded))
        });
        if let Some(unneeded) = replaced.await? {
            self.remove_unneeded(unneeded).await;
        }
        Ok(())
    }
}

impl SmallBlob {
    fn registration(&self, found: Option<&FoundRecord>, keep_theirs: bool) -> Transaction {
        let key = record_key(self.info.id);
        let base = Transaction::new();
        let transaction = match found {
            Some(found) if keep_theirs => add_conditions(base, self.info.id, found),
            Some(found) => self.put_all(base.when(Compare::Value(key, found.stored.value.clone()))),
            None => self.put_all(base.when(Compare::Absent(key))),
        };
        transaction.put_with_lease(self.pin.clone(), "", self.lease)
    }

    fn put_all(&self, transaction: Transaction) -> Transaction {
        let record = BlobRecord {
            upload: self.upload,
            place: ContentPlace::Default,
            size: self.info.size,
            damaged: false,
            condemned: None,
        };
        let transaction = transaction.put(record_key(self.info.id), record.encode());
        let values = self.values.iter().cloned();
        values.fold(transaction, |transaction, (key, value)| {
            transaction.put(key, value)
        })
    }
}
