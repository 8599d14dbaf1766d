//! Common support for the blob tests.
#![allow(dead_code)]

pub(crate) mod forgetful;

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::ContentId;
use bunraku_store::blobs::{
    BlobError, BlobOptions, Blobs, ContentPlace, DirectoryBlobs, SharedBlobs, StoreBlobs,
};
use bunraku_store::contract::Random;
use bunraku_store::testing::S3Server;
use bunraku_store::{EmbeddedOptions, EmbeddedStore, Range, SharedStore};
use futures::TryStreamExt;
use tempfile::TempDir;

/// The places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Directory,
    Store,
    S3,
}

/// Blobs in one of their places, on an embedded store.
pub(crate) struct World {
    pub(crate) store: SharedStore,
    pub(crate) options: BlobOptions,
    pub(crate) kind: Kind,
    pub(crate) directory: TempDir,
    pub(crate) s3: Option<S3Server>,
}

pub(crate) fn options() -> BlobOptions {
    BlobOptions {
        pin_for: Duration::from_secs(60),
        grace: Duration::ZERO,
        max_size: None,
    }
}

impl World {
    pub(crate) async fn new(kind: Kind, options: BlobOptions) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("store");
        std::fs::create_dir_all(&path).expect("a directory");
        let store = EmbeddedStore::open(&path, EmbeddedOptions::default())
            .await
            .expect("a store");
        let s3 = match kind {
            Kind::S3 => Some(S3Server::start().await),
            _ => None,
        };
        Self {
            store: Arc::new(store),
            options,
            kind,
            directory,
            s3,
        }
    }

    /// Creates blobs in the given store, as chunks.
    pub(crate) fn in_store(store: SharedStore, options: BlobOptions) -> Self {
        Self {
            store,
            options,
            kind: Kind::Store,
            directory: tempfile::tempdir().expect("a temporary directory"),
            s3: None,
        }
    }

    /// Returns a world for every place.
    pub(crate) async fn all(options: BlobOptions) -> [Self; 3] {
        [
            Self::new(Kind::Directory, options.clone()).await,
            Self::new(Kind::Store, options.clone()).await,
            Self::new(Kind::S3, options).await,
        ]
    }

    /// Opens the blobs as another server, or as after a restart.
    pub(crate) async fn open(&self) -> SharedBlobs {
        let (store, options) = (self.store.clone(), self.options.clone());
        if self.kind == Kind::Directory {
            let path = self.directory.path().join("blobs");
            let opened = DirectoryBlobs::in_directory(path, store, options).await;
            return Arc::new(opened.expect("opens"));
        }
        let blobs = StoreBlobs::in_store(store, options);
        match &self.s3 {
            None => Arc::new(blobs),
            Some(s3) => {
                let blobs = blobs.with_s3(&s3.options()).expect("valid settings");
                blobs.activate(ContentPlace::S3).expect("it has S3");
                Arc::new(blobs)
            }
        }
    }

    /// Returns the names of everything that holds bytes, finished or not.
    pub(crate) async fn stored_names(&self) -> Vec<String> {
        if self.kind != Kind::Directory {
            let range = Range {
                keys_only: true,
                ..Range::prefix("blob-chunks/")
            };
            let page = self.store.range(range).await.expect("reads");
            let mut names: Vec<_> = page.items.into_iter().map(|item| item.key).collect();
            if let Some(s3) = &self.s3 {
                assert_eq!(names, Vec::<String>::new(), "all bytes are objects");
                names = s3.objects().await;
                names.extend((0..s3.unfinished().await).map(|_| "unfinished".to_owned()));
            }
            return names;
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
