//! Catalogs: kept once each, with every file they refer to, for as long as
//! anything holds them.
//!
//! `catalogs/<id>` is a catalog's record; its JSON text and its files are
//! blobs. Whoever needs a catalog (a compiled pointer, a release, a target)
//! *holds* it under a name of its own: `catalog-holds/<id>/<holder>`. A record
//! without holders is condemned, and removed when it still has none after a
//! grace time.
//!
//! Rules that keep it right, with several servers on one store:
//!
//! - A record comes before its references to blobs and goes after them, so a
//!   crash anywhere leaves something that the collector can see.
//! - A hold is made in a transaction that compares the record's value and
//!   writes it again; the collector compares the record's revision, so it
//!   loses to whatever came after it looked.
//! - References carry the record's *incarnation*: one that is being removed
//!   slowly cannot take references from the one that came after it.
//!
//! Equal id means equal in all that matters: the text that came first stays,
//! with its lines and its commit.

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

/// Limits and times.
#[derive(Clone, Debug)]
pub struct CatalogOptions {
    /// Bytes of a catalog's JSON text; a larger one is refused.
    pub max_size: u64,
    /// Files that a catalog may refer to.
    pub max_files: usize,
    /// How long a catalog that nothing holds is kept.
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

/// A catalog that is to be kept.
pub struct NewCatalog {
    pub node: NodeName,
    pub environment: EnvironmentName,
    pub code_id: CodeId,
    pub catalog: Catalog,
    /// Where the content of each file is that the catalog names.
    pub files: Vec<CatalogFile>,
}

/// A file that a catalog names.
#[derive(Clone, Debug)]
pub struct CatalogFile {
    pub content: ContentId,
    pub from: FileSource,
}

/// Where a file's bytes are now.
#[derive(Clone, Debug)]
pub enum FileSource {
    Path(PathBuf),
    Bytes(Bytes),
}

/// The handle on the kept catalogs.
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

    /// What is known of a catalog; nothing if it is not kept.
    pub async fn record(&self, id: CatalogId) -> Result<Option<CatalogRecord>, CatalogError> {
        let found = self.stored(id).await?;
        Ok(found.and_then(|found| found.document.public()))
    }

    /// The catalog.
    pub async fn get(&self, id: CatalogId) -> Result<Catalog, CatalogError> {
        let record = self.record(id).await?.ok_or(CatalogError::Missing(id))?;
        let text = self.blobs.read(record.content).await?;
        Catalog::from_json(&text).map_err(|source| CatalogError::Unreadable { id, source })
    }

    /// The catalog's JSON text, verified while it is read.
    pub async fn open(&self, id: CatalogId) -> Result<(CatalogRecord, BlobStream), CatalogError> {
        let record = self.record(id).await?.ok_or(CatalogError::Missing(id))?;
        let stream = self.blobs.open(record.content).await?;
        Ok((record, stream))
    }

    async fn stored(
        &self,
        id: CatalogId,
    ) -> Result<Option<document::Stored<record::Record>>, CatalogError> {
        Ok(document::read(&*self.store, &keys::catalog(id)).await?)
    }
}
