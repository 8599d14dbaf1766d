//! Common support for the blob tests.
#![allow(dead_code)]

pub(crate) mod forgetful;

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::ContentId;
use bunraku_store::blobs::{
    BlobError, BlobOptions, Blobs, DirectoryBlobs, SharedBlobs, StoreBlobs,
};
use bunraku_store::contract::Random;
use bunraku_store::{EmbeddedOptions, EmbeddedStore, Range, SharedStore};
use futures::TryStreamExt;
use tempfile::TempDir;

/// Blobs in one of their places, on an embedded store.
pub(crate) struct World {
    pub(crate) store: SharedStore,
    pub(crate) options: BlobOptions,
    pub(crate) in_directory: bool,
    pub(crate) directory: TempDir,
}

pub(crate) fn options() -> BlobOptions {
    BlobOptions {
        pin_for: Duration::from_secs(60),
        grace: Duration::ZERO,
        max_size: None,
    }
}

impl World {
    pub(crate) async fn new(in_directory: bool, options: BlobOptions) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("store");
        std::fs::create_dir_all(&path).expect("a directory");
        let store = EmbeddedStore::open(&path, EmbeddedOptions::default())
            .await
            .expect("a store");
        Self {
            store: Arc::new(store),
            options,
            in_directory,
            directory,
        }
    }

    /// Creates blobs in the given store, as chunks.
    pub(crate) fn in_store(store: SharedStore, options: BlobOptions) -> Self {
        Self {
            store,
            options,
            in_directory: false,
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    pub(crate) async fn both(options: BlobOptions) -> [Self; 2] {
        [
            Self::new(true, options.clone()).await,
            Self::new(false, options).await,
        ]
    }

    /// Opens the blobs as another server, or as after a restart.
    pub(crate) async fn open(&self) -> SharedBlobs {
        if self.in_directory {
            let path = self.directory.path().join("blobs");
            let opened =
                DirectoryBlobs::in_directory(path, self.store.clone(), self.options.clone()).await;
            Arc::new(opened.expect("opens"))
        } else {
            Arc::new(StoreBlobs::in_store(
                self.store.clone(),
                self.options.clone(),
            ))
        }
    }

    /// Returns the names of everything that holds bytes, finished or not.
    pub(crate) async fn stored_names(&self) -> Vec<String> {
        if !self.in_directory {
            let range = Range {
                keys_only: true,
                ..Range::prefix("blob-chunks/")
            };
            let page = self.store.range(range).await.expect("reads");
            return page.items.into_iter().map(|item| item.key).collect();
        }
        let mut names: Vec<_> = self
            .files()
            .into_iter()
            .map(|file| file.display().to_string())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn files(&self) -> Vec<std::path::PathBuf> {
        let (mut files, mut directories) = (Vec::new(), vec![self.directory.path().join("blobs")]);
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).expect("lists") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        files
    }
}

pub(crate) async fn read(blobs: &dyn Blobs, id: ContentId) -> Result<Vec<u8>, BlobError> {
    let mut stream = blobs.open(id).await?;
    let mut all = Vec::new();
    while let Some(bytes) = stream.try_next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

pub(crate) async fn read_range(
    blobs: &dyn Blobs,
    id: ContentId,
    range: std::ops::Range<u64>,
) -> Result<Vec<u8>, BlobError> {
    let mut stream = blobs.open_range(id, range).await?;
    let mut all = Vec::new();
    while let Some(bytes) = stream.try_next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

/// Returns bytes that look random and are the same each time.
pub(crate) fn content(seed: u64, size: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&random.number().to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Returns a random index for a list of this length.
pub(crate) fn place(random: &mut Random, length: usize) -> usize {
    usize::try_from(random.below(length.max(1) as u64)).expect("no longer than a list")
}
