//! The storage of bytes: the interface that the directory, the store and the object store share.
//!
//! A place knows nothing about records, references or time. The bytes under an upload number are
//! written once, by one writer.
//!
//! Listing an object store takes long and costs money. So a place may need *notes*: a key per upload
//! in the store, which exists from before its first byte until it has a record, and again from the
//! end of its record until its last byte is gone. The notes are what [`Place::stored`] returns.

use std::fmt;

use async_trait::async_trait;
use bunraku_model::{ContentId, ContentPlace};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::BlobError;
use super::manifest::Manifest;

/// The id of one write of some content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct UploadId(pub(super) Uuid);

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl UploadId {
    pub(super) fn new() -> Self {
        Self(Uuid::new_v4())
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }
}

/// The bytes under an upload number, with the content's id once it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredUpload {
    pub(super) place: ContentPlace,
    pub(super) upload: UploadId,
    pub(super) id: Option<ContentId>,
}

#[async_trait]
pub(super) trait Place: Send + Sync + 'static {
    async fn begin(&self, upload: UploadId) -> Result<Box<dyn PlaceWriter>, BlobError>;

    /// Returns the keys and values of a whole upload with one chunk at most, if this place is in the
    /// store: then it is written together with its record. `None` for other places.
    fn as_values(
        &self,
        _upload: UploadId,
        _bytes: &Bytes,
        _manifest: &Manifest,
    ) -> Option<Vec<(String, Bytes)>> {
        None
    }

    /// Returns the key of an upload's note, if this place needs notes.
    fn note(&self, _upload: UploadId) -> Option<String> {
        None
    }

    /// Returns the size above which this place refuses content.
    fn max_size(&self) -> Option<u64> {
        None
    }

    /// Opens a finished upload.
    async fn open(
        &self,
        id: ContentId,
        upload: UploadId,
    ) -> Result<Box<dyn PlaceReader>, BlobError>;

    /// Removes everything under the number, and its note. It is not an error if nothing exists.
    async fn remove(&self, stored: StoredUpload) -> Result<(), BlobError>;

    /// Returns all uploads, finished or not. A place that needs notes returns the uploads that have
    /// one.
    async fn stored(&self) -> Result<Vec<StoredUpload>, BlobError>;
}

#[async_trait]
pub(super) trait PlaceWriter: Send {
    async fn chunk(&mut self, hash: ContentId, bytes: Bytes) -> Result<(), BlobError>;

    /// Finishes the upload. When this returns, everything is durable.
    async fn finish(self: Box<Self>, id: ContentId, manifest: &Manifest) -> Result<(), BlobError>;
}

#[async_trait]
pub(super) trait PlaceReader: Send + Sync {
    fn manifest(&self) -> &Manifest;

    /// Returns the bytes unchecked: the caller verifies them.
    async fn chunk(&self, index: usize) -> Result<Bytes, BlobError>;
}
