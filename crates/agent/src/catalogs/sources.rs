//! The files of a catalog, for the engine. Maps addresses to cached contents.

use std::collections::BTreeMap;
use std::io::Read;

use bunraku_engine::{LocalSources, SourceEntry, Sources, StepError};
use bunraku_model::catalog::{CatalogSource, SourceFile};
use bunraku_model::{Catalog, ContentId};
use sha2::{Digest, Sha256};

use super::CatalogCache;

/// The address scheme of contents below directories.
const SCHEME: &str = "content:";

/// The sources of one catalog.
pub(crate) struct CachedSources {
    cache: CatalogCache,
    sources: BTreeMap<String, CatalogSource>,
    /// Handles paths on this machine.
    local: LocalSources,
}

impl CachedSources {
    pub(crate) fn new(cache: CatalogCache, catalog: &Catalog) -> Self {
        Self {
            cache,
            sources: catalog.sources.clone(),
            local: LocalSources::default(),
        }
    }

    /// Returns a file below a directory of the catalog, by the directory's address.
    fn below(&self, address: &str) -> Option<SourceFile> {
        self.sources.iter().find_map(|(directory, source)| {
            let CatalogSource::Directory { entries } = source else {
                return None;
            };
            let path = address.strip_prefix(directory.trim_end_matches('/'))?;
            let path = path.strip_prefix('/')?;
            entries.iter().find(|entry| entry.path == path)?.file
        })
    }

    fn read(&self, address: &str, id: ContentId) -> Result<Box<dyn Read + Send>, StepError> {
        match std::fs::File::open(self.cache.content(id)) {
            Ok(file) => Ok(Box::new(VerifyingReader {
                file,
                hasher: Some(Sha256::new()),
                id,
            })),
            Err(error) => Err(StepError::because(
                format!("the content of {address} is not in the cache"),
                error,
            )),
        }
    }
}

impl Sources for CachedSources {
    fn open(&self, address: &str) -> Result<Box<dyn Read + Send>, StepError> {
        if let Some(id) = address.strip_prefix(SCHEME).and_then(|id| id.parse().ok()) {
            return self.read(address, id);
        }
        match self.sources.get(address) {
            Some(CatalogSource::File(file)) => self.read(address, file.content),
            Some(CatalogSource::Directory { .. }) => {
                Err(StepError::new(format!("{address} is a directory")))
            }
            None => match self.below(address) {
                Some(file) => self.read(address, file.content),
                None => self.local.open(address),
            },
        }
    }

    fn list(&self, address: &str) -> Result<Vec<SourceEntry>, StepError> {
        match self.sources.get(address) {
            Some(CatalogSource::Directory { entries }) => Ok(entries
                .iter()
                .map(|entry| SourceEntry {
                    path: entry.path.clone().into(),
                    directory: entry.file.is_none(),
                    address: (entry.file)
                        .map(|file| format!("{SCHEME}{}", file.content))
                        .unwrap_or_default(),
                })
                .collect()),
            Some(CatalogSource::File(_)) => {
                Err(StepError::new(format!("{address} is not a directory")))
            }
            None => self.local.list(address),
        }
    }
}

/// A reader that verifies the content. If the hash is wrong, it returns an error at the end, before
/// anything is put into place: the disk may have changed the file since it was cached.
struct VerifyingReader {
    file: std::fs::File,
    hasher: Option<Sha256>,
    id: ContentId,
}

impl Read for VerifyingReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        if count > 0 {
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&buffer[..count]);
            }
            return Ok(count);
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        let read =
            (self.hasher.take()).map(|hasher| ContentId::from_digest(hasher.finalize().into()));
        if read.is_none_or(|read| read == self.id) {
            Ok(0)
        } else {
            Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                format!("the cached content {} is corrupt", self.id.short()),
            ))
        }
    }
}
