//! Errors of blob operations.

use bunraku_model::{ContentId, ContentPlace};

use super::object_failure::ObjectFailure;
use crate::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("content {0} does not exist")]
    Missing(ContentId),

    /// Damaged content is never returned as valid. Writing it again repairs it.
    #[error("content {id} is corrupt: {what}")]
    Damaged { id: ContentId, what: String },

    #[error("the content is {found}, expected {expected}")]
    Mismatch {
        expected: ContentId,
        found: ContentId,
    },

    #[error("the content exceeds the limit of {limit} bytes")]
    TooLarge { limit: u64 },

    #[error("content {id} has {size} bytes, which does not cover {start} to {end}")]
    OutOfRange {
        id: ContentId,
        size: u64,
        start: u64,
        end: u64,
    },

    /// The lease of the upload or the pin ended while it was needed.
    #[error("the write took longer than its lease; write it again")]
    LeaseEnded,

    #[error("`{0}` is not a valid referrer: it must be the end of a key")]
    Referrer(String),

    #[error("cannot read the content to write")]
    Source(#[source] std::io::Error),

    #[error("cannot {doing}")]
    Io {
        doing: String,
        #[source]
        source: std::io::Error,
    },

    /// An object store failed. Nothing was lost; another attempt may succeed.
    #[error("cannot {doing}")]
    Object {
        doing: String,
        #[source]
        source: ObjectFailure,
    },

    #[error("the content is in {0}, which this server is not configured for")]
    PlaceNotConfigured(ContentPlace),

    #[error("cannot update the record of a blob")]
    Store(#[source] StoreError),
}

impl From<StoreError> for BlobError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::LeaseNotFound(_) => Self::LeaseEnded,
            other => Self::Store(other),
        }
    }
}

impl BlobError {
    pub(super) fn damaged(id: ContentId, what: impl Into<String>) -> Self {
        Self::Damaged {
            id,
            what: what.into(),
        }
    }

    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// Returns whether the place of the bytes does not answer or refuses to, so that another attempt
    /// may succeed.
    pub fn is_place_failure(&self) -> bool {
        matches!(self, Self::Object { .. })
    }

    /// Returns whether the bytes themselves are wrong, so that another read cannot help.
    pub(super) fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Missing(_))
    }
}
