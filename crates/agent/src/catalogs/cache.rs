//! The node's on-disk cache of catalogs and files. Entries are complete and verified, and the cache
//! keeps only those that the node needs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bunraku_model::{Catalog, CatalogId, ContentId};

use super::CatalogError;

/// The cache directories.
#[derive(Clone, Debug)]
pub(crate) struct CatalogCache {
    catalogs: PathBuf,
    contents: PathBuf,
    /// Keys of modules that servers revoked.
    revoked_keys: PathBuf,
}

impl CatalogCache {
    pub(crate) fn open(data_dir: &Path) -> Result<Self, CatalogError> {
        let cache = Self {
            catalogs: data_dir.join("catalogs"),
            contents: data_dir.join("content"),
            revoked_keys: data_dir.join("revoked-module-keys.json"),
        };
        for directory in [&cache.catalogs, &cache.contents] {
            bunraku_files::create_private_directory(directory).map_err(file_error(directory))?;
        }
        Ok(cache)
    }

    /// Returns the catalog if it is cached and its content matches its id.
    pub(crate) fn catalog(&self, id: CatalogId) -> Option<Catalog> {
        let path = self.catalogs.join(id.to_string());
        let catalog = Catalog::from_json(&std::fs::read(&path).ok()?).ok();
        let catalog = catalog.filter(|catalog| catalog.id() == id);
        if catalog.is_none() {
            tracing::warn!(%id, "a cached catalog is corrupt; fetching it again");
            let _ = std::fs::remove_file(path);
        }
        catalog
    }

    /// Stores a verified catalog.
    pub(crate) fn store(&self, id: CatalogId, text: &[u8]) -> Result<(), CatalogError> {
        let path = self.catalogs.join(id.to_string());
        bunraku_files::replace(&path, text, 0o600).map_err(file_error(&path))
    }

    pub(crate) fn has_content(&self, id: ContentId, size: u64) -> bool {
        (self.content(id).metadata()).is_ok_and(|data| data.is_file() && data.len() == size)
    }

    pub(crate) fn content(&self, id: ContentId) -> PathBuf {
        self.contents.join(id.to_string())
    }

    pub(crate) fn revoked_keys(&self) -> PathBuf {
        self.revoked_keys.clone()
    }

    /// Returns a path to write content to before it is verified.
    pub(crate) fn partial_path(&self, id: ContentId) -> PathBuf {
        self.contents.join(format!("{id}.part"))
    }

    /// Moves verified content into place.
    pub(crate) fn place(
        &self,
        id: ContentId,
        beside: &Path,
        file: &File,
    ) -> Result<(), CatalogError> {
        let path = self.content(id);
        file.sync_all()
            .and_then(|()| bunraku_files::move_into_place(beside, &path))
            .map_err(file_error(&path))
    }

    /// Removes everything except these catalogs and their files.
    pub(crate) fn prune(&self, kept: &[CatalogId]) {
        let mut contents = BTreeSet::new();
        for id in kept {
            contents.extend(self.catalog(*id).iter().flat_map(Catalog::contents));
        }
        prune(&self.catalogs, |id: CatalogId| kept.contains(&id));
        prune(&self.contents, |id: ContentId| contents.contains(&id));
    }
}

fn prune<Id: FromStr>(directory: &Path, is_kept: impl Fn(Id) -> bool) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let id = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // An entry whose name is not an id is a leftover of an interrupted write.
        if !id.is_some_and(&is_kept)
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            tracing::warn!(path = %entry.path().display(), error = %error, "cannot remove it from the cache");
        }
    }
}

pub(super) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> CatalogError + use<> {
    let path = path.to_owned();
    move |source| CatalogError::File { path, source }
}
