//! All places of a server: bytes are written to the active one, and read from the one that their
//! record names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bunraku_model::{ContentId, ContentPlace};

use super::BlobError;
use super::object_place::ObjectPlace;
use super::place::{Place, PlaceReader, StoredUpload};
use super::record::BlobRecord;
use crate::Transaction;

pub(super) struct Places {
    default: Arc<dyn Place>,
    s3: Option<Arc<ObjectPlace>>,
    writes_to_s3: AtomicBool,
}

impl Places {
    pub(super) fn new(default: Arc<dyn Place>) -> Self {
        Self {
            default,
            s3: None,
            writes_to_s3: AtomicBool::new(false),
        }
    }

    pub(super) fn with_s3(&self, s3: ObjectPlace) -> Self {
        Self {
            default: Arc::clone(&self.default),
            s3: Some(Arc::new(s3)),
            writes_to_s3: AtomicBool::new(false),
        }
    }

    pub(super) fn active(&self) -> ContentPlace {
        if self.writes_to_s3.load(Ordering::Relaxed) {
            ContentPlace::S3
        } else {
            ContentPlace::Default
        }
    }

    pub(super) fn activate(&self, place: ContentPlace) -> Result<(), BlobError> {
        self.get(place)?;
        self.writes_to_s3
            .store(place == ContentPlace::S3, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn get(&self, place: ContentPlace) -> Result<&dyn Place, BlobError> {
        match (place, &self.s3) {
            (ContentPlace::Default, _) => Ok(&*self.default),
            (ContentPlace::S3, Some(s3)) => Ok(&**s3),
            (ContentPlace::S3, None) => Err(BlobError::PlaceNotConfigured(place)),
        }
    }

    pub(super) fn s3(&self) -> Option<&ObjectPlace> {
        self.s3.as_deref()
    }

    pub(super) async fn open(
        &self,
        id: ContentId,
        record: &BlobRecord,
    ) -> Result<Box<dyn PlaceReader>, BlobError> {
        self.get(record.place)?.open(id, record.upload).await
    }

    pub(super) async fn remove(&self, stored: StoredUpload) -> Result<(), BlobError> {
        self.get(stored.place)?.remove(stored).await
    }

    pub(super) async fn stored(&self) -> Result<Vec<StoredUpload>, BlobError> {
        let mut stored = self.default.stored().await?;
        if let Some(s3) = &self.s3 {
            stored.extend(s3.stored().await?);
        }
        Ok(stored)
    }

    /// Adds the note of bytes that lose their record in the same transaction.
    pub(super) fn add_note(
        &self,
        transaction: Transaction,
        stored: StoredUpload,
    ) -> Result<Transaction, BlobError> {
        Ok(match self.get(stored.place)?.note(stored.upload) {
            Some(key) => transaction.put(key, ""),
            None => transaction,
        })
    }

    /// Removes the note of bytes that get their record in the same transaction.
    pub(super) fn remove_note(
        &self,
        transaction: Transaction,
        stored: StoredUpload,
    ) -> Result<Transaction, BlobError> {
        Ok(match self.get(stored.place)?.note(stored.upload) {
            Some(key) => transaction.delete(key),
            None => transaction,
        })
    }
}
