//! Catalogs: each is stored once, with every file that it refers to, for as
//! long as anything holds it.
//!
//! `catalogs/<id>` is a catalog's record. Its JSON text and its files are
//! blobs. A user of a catalog (a compiled pointer, a release, a target) *holds*
//! it under its own name: `catalog-holds/<id>/<holder>`. A record without
//! holders is condemned. It is removed if it still has no holders after a grace
//! period.
//!
//! These rules keep it correct with several servers on one store:
//!
//! - A record is written before its references to blobs and removed after them,
//!   so a crash at any point leaves something that the collector can see.
//! - A hold is created in a transaction that compares the record's value and
//!   writes it again. The collector compares the record's revision, so any
//!   write after its check defeats it.
//! - References include the record's *incarnation*: a slow removal of one
//!   record cannot remove references of its successor.
//!
//! Catalogs with equal ids are equal in everything that matters. The first text
//! stays, with its lines and its commit.

mod collect;
mod error;
mod hold;
mod put;
mod record;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use bunraku_model::{Catalog, CatalogId, CodeId, ContentId, EnvironmentName, NodeName};
use bunraku_store::SharedStore;
use bunraku_store::blobs::{BlobStream, SharedBlobs};
use bytes::Bytes;

pub use collect::CollectedCatalogs;
pub use error::CatalogError;
pub use record::CatalogRecord;

use bunraku_control::clock::Clock;
use bunraku_control::document;
use bunraku_control::keys;

/// Limits and durations of the catalog service.
#[derive(Clone, Debug)]
pub struct CatalogOptions {
    /// Maximum size of a catalog's JSON text in bytes. Larger catalogs are refused.
    pub max_size: u64,
    /// Maximum number of files that a catalog may refer to.
    pub max_files: usize,
    /// Time for which a catalog without holders is kept.
    pub grace: Duration,
}

impl Default for CatalogOptions {
    fn default() -> Self {
        Self {
            max_size: 32 << 20,
            max_files: 10_000,
            grace: Duration::from_secs(60 * 60),
        }
    }
}

/// A catalog to store.
pub struct NewCatalog {
    pub node: NodeName,
    pub environment: EnvironmentName,
    pub code_id: CodeId,
    pub catalog: Catalog,
    /// The location of each file that the catalog names.
    pub files: Vec<CatalogFile>,
}

/// A file that a catalog names.
#[derive(Clone, Debug)]
pub struct CatalogFile {
    pub content: ContentId,
    pub from: FileSource,
}

/// The current location of a file's bytes.
#[derive(Clone, Debug)]
pub enum FileSource {
    Path(PathBuf),
    Bytes(Bytes),
}

/// Handle for the stored catalogs.
#[derive(Clone)]
pub struct Catalogs {
    store: SharedStore,
    blobs: SharedBlobs,
    clock: Clock,
    options: CatalogOptions,
}

impl Catalogs {
    pub fn new(
        store: SharedStore,
        blobs: SharedBlobs,
        clock: Clock,
        options: CatalogOptions,
    ) -> Self {
        Self {
            store,
            blobs,
            clock,
            options,
        }
    }

    pub fn options(&self) -> &CatalogOptions {
        &self.options
    }

    /// Returns a catalog's record, or nothing if the catalog is not stored.
    pub async fn record(&self, id: CatalogId) -> Result<Option<CatalogRecord>, CatalogError> {
        let found = self.stored(id).await?;
        Ok(found.and_then(|found| found.document.public()))
    }

    /// Returns the catalog.
    pub async fn get(&self, id: CatalogId) -> Result<Catalog, CatalogError> {
        let record = self.record(id).await?.ok_or(CatalogError::Missing(id))?;
        let text = self.blobs.read(record.content).await?;
        Catalog::from_json(&text).map_err(|source| CatalogError::Unreadable { id, source })
    }

    /// Opens the catalog's JSON text, which is verified while it is read.
    pub async fn open(&self, id: CatalogId) -> Result<(CatalogRecord, BlobStream), CatalogError> {
        let record = self.record(id).await?.ok_or(CatalogError::Missing(id))?;
        let stream = self.blobs.open(record.content).await?;
        Ok((record, stream))
    }

    async fn stored(
        &self,
        id: CatalogId,
    ) -> Result<Option<document::Versioned<record::Record>>, CatalogError> {
        Ok(document::read(&*self.store, &keys::catalog(id)).await?)
    }
}
