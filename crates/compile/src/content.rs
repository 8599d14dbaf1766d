//! The content service: files by their content address.
//!
//! Any server serves any content; [`bunraku_store::blobs`] verifies it while it
//! is read. A node reads only contents that its released catalogs name: an
//! address does not grant permission.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bunraku_model::{CatalogId, ContentId};
use bunraku_store::blobs::{BlobError, BlobStream, SharedBlobs};

use crate::catalogs::Catalogs;
use bunraku_control::ServiceError;

/// Number of catalogs whose files are remembered. A node fetches one file after another.
const REMEMBERED: usize = 64;

/// The files that a catalog names, sorted. An id always names the same files.
type Files = Arc<[ContentId]>;

/// Handle for the content service.
#[derive(Clone)]
pub struct Contents {
    blobs: SharedBlobs,
    catalogs: Catalogs,
    remembered: Arc<Mutex<VecDeque<(CatalogId, Files)>>>,
}

impl Contents {
    pub fn new(blobs: SharedBlobs, catalogs: Catalogs) -> Self {
        Self {
            blobs,
            catalogs,
            remembered: Arc::default(),
        }
    }

    /// Returns the size of the content.
    pub async fn size(&self, id: ContentId) -> Result<u64, ServiceError> {
        let size = self.blobs.size(id).await.map_err(content_error)?;
        size.ok_or_else(|| no_such_content(id))
    }

    /// Opens the content, or a part of it.
    pub async fn open(
        &self,
        id: ContentId,
        part: Option<Range<u64>>,
    ) -> Result<BlobStream, ServiceError> {
        let opened = match part {
            None => self.blobs.open(id).await,
            Some(part) => self.blobs.open_range(id, part).await,
        };
        opened.map_err(content_error)
    }

    /// Returns true if one of these catalogs names the content as a file.
    pub async fn is_named_by(
        &self,
        id: ContentId,
        catalogs: &[CatalogId],
    ) -> Result<bool, ServiceError> {
        for catalog in catalogs {
            let files = self.files_of(*catalog).await?;
            if files.binary_search(&id).is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn files_of(&self, catalog: CatalogId) -> Result<Files, ServiceError> {
        if let Some((_, files)) = self.remembered().iter().find(|(id, _)| *id == catalog) {
            return Ok(Arc::clone(files));
        }
        let Some(record) = self.catalogs.record(catalog).await? else {
            return Ok(Arc::from([]));
        };
        let mut files = record.files;
        files.sort_unstable();
        let files: Files = files.into();
        let mut remembered = self.remembered();
        remembered.truncate(REMEMBERED - 1);
        remembered.push_front((catalog, Arc::clone(&files)));
        Ok(files)
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, VecDeque<(CatalogId, Files)>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn no_such_content(id: ContentId) -> ServiceError {
    ServiceError::NotFound {
        what: format!("content {id}"),
        hint: None,
    }
}

fn content_error(error: BlobError) -> ServiceError {
    match error {
        BlobError::Missing(id) => no_such_content(id),
        error => ServiceError::content("cannot read content", error),
    }
}
