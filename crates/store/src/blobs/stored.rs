//! Blobs with their records in a store and their bytes in a place.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_model::{ContentId, ContentPlace};
use jiff::Timestamp;
use tokio::io::AsyncRead;

use super::object_place::ObjectPlace;
use super::place::Place;
use super::places::Places;
use super::record::{BlobRecord, RECORDS, record_key};
use super::refer::Pin;
use super::{
    BlobError, BlobInfo, BlobStream, Blobs, CollectionSummary, ContentUsage, PinnedBlob,
    RelocationSummary, S3Options, ScrubSummary,
};
use crate::{KeyValue, Range as KeyRange, SharedStore, StoreError, Transaction};

/// Times and limits for blobs.
#[derive(Clone, Debug)]
pub struct BlobOptions {
    /// The time that a writer has to refer to the content it wrote. A writer that died blocks the
    /// removal of its leftovers for this long.
    pub pin_for: Duration,
    /// The time for which content without references is kept.
    pub grace: Duration,
    /// Larger content is refused. `None`: no limit.
    pub max_size: Option<u64>,
}

impl Default for BlobOptions {
    fn default() -> Self {
        Self {
            pin_for: Duration::from_secs(10 * 60),
            grace: Duration::from_secs(60 * 60),
            max_size: None,
        }
    }
}

/// The one implementation of [`Blobs`]. Clones share everything.
pub struct BlobStore {
    pub(super) store: SharedStore,
    pub(super) places: Arc<Places>,
    pub(super) options: BlobOptions,
}

impl Clone for BlobStore {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            places: Arc::clone(&self.places),
            options: self.options.clone(),
        }
    }
}

/// A record, with the exact value and revision that were read.
pub(super) struct FoundRecord {
    pub(super) record: BlobRecord,
    pub(super) stored: KeyValue,
}

impl BlobStore {
    pub(super) fn new(store: SharedStore, place: Arc<dyn Place>, options: BlobOptions) -> Self {
        Self {
            store,
            places: Arc::new(Places::new(place)),
            options,
        }
    }

    /// Adds an S3-compatible object store as a second place. New content goes there only after
    /// [`Blobs::activate`]. Makes no request.
    pub fn with_s3(self, options: &S3Options) -> Result<Self, BlobError> {
        let s3 = ObjectPlace::new(self.store.clone(), options)?;
        Ok(Self {
            places: Arc::new(self.places.with_s3(s3)),
            ..self
        })
    }

    pub(super) async fn find(&self, id: ContentId) -> Result<Option<FoundRecord>, BlobError> {
        let Some(stored) = self.store.get(&record_key(id)).await? else {
            return Ok(None);
        };
        let record = BlobRecord::decode(id, &stored.value)?;
        Ok(Some(FoundRecord { record, stored }))
    }

    /// Returns a page of records; an empty page is the end.
    pub(super) async fn records(
        &self,
        after: Option<ContentId>,
    ) -> Result<Vec<(ContentId, FoundRecord)>, BlobError> {
        let range = KeyRange {
            after: after.map(record_key),
            ..KeyRange::prefix(RECORDS)
        };
        Ok(self.record_page(range).await?.0)
    }

    /// Returns the records in a range, and whether more follow.
    pub(super) async fn record_page(
        &self,
        range: KeyRange,
    ) -> Result<(Vec<(ContentId, FoundRecord)>, bool), BlobError> {
        let page = self.store.range(range).await?;
        let mut records = Vec::with_capacity(page.items.len());
        for stored in page.items {
            // Skipping it could make the bytes that it names look like debris.
            let id = stored.key[RECORDS.len()..].parse().map_err(|error| {
                StoreError::Invalid(format!("`{}` is not a blob's record: {error}", stored.key))
            })?;
            let record = BlobRecord::decode(id, &stored.value)?;
            records.push((id, FoundRecord { record, stored }));
        }
        Ok((records, page.more))
    }
}

#[async_trait]
impl Blobs for BlobStore {
    async fn put(
        &self,
        source: &mut (dyn AsyncRead + Send + Unpin),
        expected: Option<ContentId>,
    ) -> Result<PinnedBlob, BlobError> {
        self.write(source, expected).await
    }

    async fn open(&self, id: ContentId) -> Result<BlobStream, BlobError> {
        self.read_whole(id).await
    }

    async fn open_range(&self, id: ContentId, range: Range<u64>) -> Result<BlobStream, BlobError> {
        self.read_part(id, range).await
    }

    async fn size(&self, id: ContentId) -> Result<Option<u64>, BlobError> {
        let found = self.find(id).await?;
        Ok(found
            .filter(|found| !found.record.damaged)
            .map(|found| found.record.size))
    }

    async fn list(&self, after: Option<ContentId>) -> Result<Vec<BlobInfo>, BlobError> {
        let records = self.records(after).await?;
        Ok(records
            .into_iter()
            .map(|(id, found)| found.record.info(id))
            .collect())
    }

    async fn pin(&self, id: ContentId) -> Result<Pin, BlobError> {
        self.take_pin(id).await
    }

    async fn reference(&self, id: ContentId, referrer: &str) -> Result<(), BlobError> {
        self.add_reference(id, referrer).await
    }

    async fn reference_all(
        &self,
        ids: &[ContentId],
        referrer: &str,
    ) -> Result<Vec<ContentId>, BlobError> {
        self.add_references(ids, referrer).await
    }

    async fn reference_in(
        &self,
        transaction: Transaction,
        id: ContentId,
        referrer: &str,
    ) -> Result<Transaction, BlobError> {
        self.with_reference(transaction, id, referrer).await
    }

    async fn unreference(&self, id: ContentId, referrer: &str) -> Result<(), BlobError> {
        self.remove_reference(id, referrer).await
    }

    fn unreference_in(
        &self,
        transaction: Transaction,
        id: ContentId,
        referrer: &str,
    ) -> Result<Transaction, BlobError> {
        Ok(transaction.delete(super::refer::reference_key(id, referrer)?))
    }

    async fn references(&self, id: ContentId) -> Result<Vec<String>, BlobError> {
        self.list_references(id).await
    }

    async fn collect(&self, now: Timestamp) -> Result<CollectionSummary, BlobError> {
        self.collect_garbage(now).await
    }

    async fn scrub(&self) -> Result<ScrubSummary, BlobError> {
        self.read_everything().await
    }

    fn active_place(&self) -> ContentPlace {
        self.places.active()
    }

    fn has_place(&self, place: ContentPlace) -> bool {
        self.places.get(place).is_ok()
    }

    fn activate(&self, place: ContentPlace) -> Result<(), BlobError> {
        self.places.activate(place)
    }

    async fn relocate(&self, share: u8) -> Result<RelocationSummary, BlobError> {
        self.relocate_share(share).await
    }

    async fn usage(&self) -> Result<ContentUsage, BlobError> {
        self.count_usage().await
    }

    fn s3_problem(&self) -> Option<String> {
        self.places.s3().and_then(ObjectPlace::problem)
    }

    async fn check_s3(&self) -> Result<(), BlobError> {
        match self.places.s3() {
            Some(s3) => s3.check().await,
            None => Ok(()),
        }
    }

    async fn signed_url(
        &self,
        id: ContentId,
        valid_for: Duration,
    ) -> Result<Option<String>, BlobError> {
        let found = self.find(id).await?.ok_or(BlobError::Missing(id))?;
        match self.places.s3() {
            Some(s3) if found.record.place == ContentPlace::S3 => {
                Ok(Some(s3.signed_url(found.record.upload, valid_for).await?))
            }
            _ => Ok(None),
        }
    }
}
