//! The store's records about contents, and their keys.

use bunraku_model::{ContentId, ContentPlace};
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::place::{StoredUpload, UploadId};
use super::{BlobError, BlobInfo};

/// The value of `blobs/<id>`. Small, because every new reference writes it again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BlobRecord {
    pub(super) upload: UploadId,
    /// The place of the bytes.
    #[serde(default, skip_serializing_if = "ContentPlace::is_default")]
    pub(super) place: ContentPlace,
    pub(super) size: u64,
    /// The bytes were read and did not match.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) damaged: bool,
    /// The time since which nothing refers to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) condemned: Option<Timestamp>,
}

impl BlobRecord {
    pub(super) fn encode(&self) -> Bytes {
        serde_json::to_vec(self)
            .expect("a record of plain values is JSON")
            .into()
    }

    pub(super) fn decode(id: ContentId, value: &[u8]) -> Result<Self, BlobError> {
        serde_json::from_slice(value)
            .map_err(|error| BlobError::damaged(id, format!("its record is invalid: {error}")))
    }

    pub(super) fn info(&self, id: ContentId) -> BlobInfo {
        BlobInfo {
            id,
            size: self.size,
        }
    }

    /// Returns the bytes that the record names.
    pub(super) fn bytes(&self, id: ContentId) -> StoredUpload {
        StoredUpload {
            place: self.place,
            upload: self.upload,
            id: Some(id),
        }
    }

    /// Returns the same record, no longer condemned.
    pub(super) fn reprieved(&self) -> Self {
        Self {
            condemned: None,
            ..self.clone()
        }
    }
}

pub(super) const RECORDS: &str = "blobs/";
pub(super) const REFERENCES: &str = "blob-refs/";
pub(super) const PINS: &str = "blob-pins/";
pub(super) const UPLOADS: &str = "blob-uploads/";
pub(super) const CHUNKS: &str = "blob-chunks/";
pub(super) const OBJECTS: &str = "blob-objects/";

pub(super) fn record_key(id: ContentId) -> String {
    format!("{RECORDS}{id}")
}

pub(super) fn upload_key(upload: UploadId) -> String {
    format!("{UPLOADS}{upload}")
}

/// The note of an upload in an object store. Its value is the id of an unfinished multipart upload,
/// or empty.
pub(super) fn object_key(upload: UploadId) -> String {
    format!("{OBJECTS}{upload}")
}

pub(super) fn references_prefix(id: ContentId) -> String {
    format!("{REFERENCES}{id}/")
}

pub(super) fn pins_prefix(id: ContentId) -> String {
    format!("{PINS}{id}/")
}

pub(super) fn chunks_prefix(upload: UploadId) -> String {
    format!("{CHUNKS}{upload}/")
}
