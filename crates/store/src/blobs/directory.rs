//! Bytes as files in a directory.
//!
//! An upload is written to `incoming/<upload>`. Once durable, it is renamed to
//! `content/<aa>/<id>.<upload>`, where `aa` are the id's first two digits. A file holds the
//! content, then its manifest, so that one rename publishes both: `head -c SIZE FILE | sha256sum`
//! gives the id.

use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bunraku_model::{ContentId, ContentPlace};
use bytes::Bytes;
use tokio::io::AsyncWriteExt;

use super::BlobError;
use super::manifest::{CHUNK_SIZE, FOOTER, Manifest};
use super::place::{Place, PlaceReader, PlaceWriter, StoredUpload, UploadId};
use super::stored::{BlobOptions, BlobStore};
use crate::SharedStore;

impl BlobStore {
    /// Opens or creates blobs in a directory, for one server or on a shared file system. Clears away
    /// leftovers of crashed writers.
    pub async fn in_directory(
        directory: impl Into<PathBuf>,
        store: SharedStore,
        options: BlobOptions,
    ) -> Result<Self, BlobError> {
        let place = DirectoryPlace {
            directory: directory.into(),
        };
        let (incoming, content) = (place.incoming(), place.content());
        blocking(move || {
            make_directory(&incoming)?;
            make_directory(&content)?;
            sync_directory(content.parent().unwrap_or(&content))
        })
        .await?;
        let blobs = Self::new(store, Arc::new(place), options);
        blobs.clear_debris().await?;
        Ok(blobs)
    }
}

/// Files in a directory.
struct DirectoryPlace {
    directory: PathBuf,
}

impl DirectoryPlace {
    fn incoming(&self) -> PathBuf {
        self.directory.join("incoming")
    }

    fn content(&self) -> PathBuf {
        self.directory.join("content")
    }
}

fn content_path(content: &Path, id: ContentId, upload: UploadId) -> PathBuf {
    let name = id.to_string();
    content.join(&name[..2]).join(format!("{name}.{upload}"))
}

#[async_trait]
impl Place for DirectoryPlace {
    async fn begin(&self, upload: UploadId) -> Result<Box<dyn PlaceWriter>, BlobError> {
        let path = self.incoming().join(upload.to_string());
        let file = tokio::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .await
            .map_err(BlobError::io(format!("create {}", path.display())))?;
        Ok(Box::new(DirectoryWriter {
            file,
            path,
            content: self.content(),
            upload,
        }))
    }

    async fn open(
        &self,
        id: ContentId,
        upload: UploadId,
    ) -> Result<Box<dyn PlaceReader>, BlobError> {
        let path = content_path(&self.content(), id, upload);
        let reader = blocking(move || DirectoryReader::open(id, path)).await?;
        Ok(Box::new(reader))
    }

    async fn remove(&self, stored: StoredUpload) -> Result<(), BlobError> {
        let mut paths = vec![self.incoming().join(stored.upload.to_string())];
        if let Some(id) = stored.id {
            paths.push(content_path(&self.content(), id, stored.upload));
        }
        blocking(move || paths.iter().try_for_each(|path| remove_file(path))).await
    }

    async fn stored(&self) -> Result<Vec<StoredUpload>, BlobError> {
        let (incoming, content) = (self.incoming(), self.content());
        blocking(move || list(&incoming, &content)).await
    }
}

struct DirectoryWriter {
    file: tokio::fs::File,
    path: PathBuf,
    content: PathBuf,
    upload: UploadId,
}

impl DirectoryWriter {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        let doing = || format!("write {}", self.path.display());
        self.file
            .write_all(bytes)
            .await
            .map_err(BlobError::io(doing()))
    }
}

#[async_trait]
impl PlaceWriter for DirectoryWriter {
    async fn chunk(&mut self, _hash: ContentId, bytes: Bytes) -> Result<(), BlobError> {
        self.write(&bytes).await
    }

    async fn finish(
        mut self: Box<Self>,
        id: ContentId,
        manifest: &Manifest,
    ) -> Result<(), BlobError> {
        self.write(&manifest.encode()).await?;
        let doing = || format!("write {}", self.path.display());
        self.file.flush().await.map_err(BlobError::io(doing()))?;
        self.file.sync_all().await.map_err(BlobError::io(doing()))?;
        let target = content_path(&self.content, id, self.upload);
        let (from, content) = (self.path.clone(), self.content.clone());
        blocking(move || publish(&from, &target, &content)).await
    }
}

/// Renames the file, and makes the new name and its parent directories durable.
fn publish(from: &Path, target: &Path, content: &Path) -> Result<(), BlobError> {
    let parent = target.parent().unwrap_or(content);
    make_directory(parent)?;
    let durable = bunraku_files::move_into_place(from, target)
        .map_err(BlobError::io(format!("rename to {}", target.display())))
        .and_then(|()| sync_directory(content));
    if durable.is_err() {
        // Nothing refers to it yet.
        let _ = std::fs::remove_file(target);
    }
    durable
}

struct DirectoryReader {
    id: ContentId,
    path: PathBuf,
    file: Arc<std::fs::File>,
    manifest: Manifest,
}

impl DirectoryReader {
    fn open(id: ContentId, path: PathBuf) -> Result<Self, BlobError> {
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(BlobError::damaged(
                    id,
                    format!("{} no longer exists", path.display()),
                ));
            }
            Err(error) => return Err(BlobError::io(format!("open {}", path.display()))(error)),
        };
        let manifest = read_manifest(id, &path, &file)?;
        Ok(Self {
            id,
            path,
            file: Arc::new(file),
            manifest,
        })
    }
}

fn read_manifest(id: ContentId, path: &Path, file: &std::fs::File) -> Result<Manifest, BlobError> {
    let damaged = |what: &str| BlobError::damaged(id, format!("{}: {what}", path.display()));
    let doing = || BlobError::io(format!("read {}", path.display()));
    let length = file.metadata().map_err(doing())?.len();
    let footer_at = length
        .checked_sub(FOOTER as u64)
        .ok_or_else(|| damaged("it is truncated"))?;
    let mut footer = [0; FOOTER];
    file.read_exact_at(&mut footer, footer_at)
        .map_err(doing())?;
    let encoded = Manifest::encoded_length(&footer).map_err(damaged)?;
    let from = length
        .checked_sub(encoded)
        .ok_or_else(|| damaged("it is truncated"))?;
    // At most the size of the file, so that a wrong size cannot exhaust memory.
    let mut bytes = vec![0; usize::try_from(encoded).map_err(|_| damaged("it is too long"))?];
    file.read_exact_at(&mut bytes, from).map_err(doing())?;
    let manifest = Manifest::decode(&bytes).map_err(damaged)?;
    if manifest.size != from {
        return Err(damaged("its length differs from the recorded one"));
    }
    Ok(manifest)
}

#[async_trait]
impl PlaceReader for DirectoryReader {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    async fn chunk(&self, index: usize) -> Result<Bytes, BlobError> {
        let length = self.manifest.chunk_length(index);
        let at = index as u64 * CHUNK_SIZE as u64;
        let (file, path, id) = (Arc::clone(&self.file), self.path.clone(), self.id);
        blocking(move || {
            let mut bytes = vec![0; length];
            match file.read_exact_at(&mut bytes, at) {
                Ok(()) => Ok(bytes.into()),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(
                    BlobError::damaged(id, format!("{} is truncated", path.display())),
                ),
                Err(error) => Err(BlobError::io(format!("read {}", path.display()))(error)),
            }
        })
        .await
    }
}

/// Lists the files that match our naming scheme; other files are left alone.
fn list(incoming: &Path, content: &Path) -> Result<Vec<StoredUpload>, BlobError> {
    let mut all = Vec::new();
    for name in names(incoming)? {
        all.extend(UploadId::parse(&name).map(|upload| StoredUpload {
            place: ContentPlace::Default,
            upload,
            id: None,
        }));
    }
    for fan in names(content)? {
        for name in names(&content.join(fan))? {
            let Some((id, upload)) = name.split_once('.') else {
                continue;
            };
            if let (Ok(id), Some(upload)) = (id.parse(), UploadId::parse(upload)) {
                all.push(StoredUpload {
                    place: ContentPlace::Default,
                    upload,
                    id: Some(id),
                });
            }
        }
    }
    Ok(all)
}

fn names(directory: &Path) -> Result<Vec<String>, BlobError> {
    let doing = || BlobError::io(format!("list {}", directory.display()));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(doing())? {
        names.extend(entry.map_err(doing())?.file_name().into_string());
    }
    Ok(names)
}

fn make_directory(path: &Path) -> Result<(), BlobError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(BlobError::io(format!("create {}", path.display())))
}

fn sync_directory(path: &Path) -> Result<(), BlobError> {
    bunraku_files::sync_directory(path)
        .map_err(BlobError::io(format!("make {} durable", path.display())))
}

fn remove_file(path: &Path) -> Result<(), BlobError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BlobError::io(format!("remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|stopped| Err(BlobError::io("access files")(stopped.into())))
}
