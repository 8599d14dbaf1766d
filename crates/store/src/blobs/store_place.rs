//! Bytes as chunks in the store, available to every server of a cluster.
//!
//! `blob-chunks/<upload>/<hash>` holds a chunk, and `blob-chunks/<upload>/manifest` holds their
//! order. A chunk that occurs twice in a content is stored once. Chunks are compressed if that saves
//! space ([`packed`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bunraku_model::{ContentId, ContentPlace};
use bytes::Bytes;

use super::key_scan;
use super::manifest::Manifest;
use super::packed;
use super::place::{Place, PlaceReader, PlaceWriter, StoredUpload, UploadId};
use super::record::{CHUNKS, chunks_prefix, upload_key};
use super::stored::{BlobOptions, BlobStore};
use super::{BlobError, CHUNK_SIZE};
use crate::{Compare, SharedStore, Transaction, settle};

/// The default size limit. etcd keeps everything in memory-mapped pages and sends it to every
/// member, so larger content belongs elsewhere.
const DEFAULT_MAX_SIZE: u64 = 256 * 1024 * 1024;
/// The manifest must fit into one value.
const MOST_CHUNKS: u64 = 16 * 1024;

impl BlobStore {
    /// Creates blobs in the store itself, for clusters. Without a limit in the options, content
    /// above 256 MiB is rejected.
    pub fn in_store(store: SharedStore, options: BlobOptions) -> Self {
        let most = MOST_CHUNKS * CHUNK_SIZE as u64;
        let place = StorePlace {
            max_size: options.max_size.unwrap_or(DEFAULT_MAX_SIZE).min(most),
            store: store.clone(),
        };
        Self::new(store, Arc::new(place), options)
    }
}

/// Chunks in the store.
struct StorePlace {
    store: SharedStore,
    max_size: u64,
}

fn manifest_key(upload: UploadId) -> String {
    format!("{}manifest", chunks_prefix(upload))
}

fn chunk_key(upload: UploadId, hash: ContentId) -> String {
    format!("{}{hash}", chunks_prefix(upload))
}

#[async_trait]
impl Place for StorePlace {
    async fn begin(&self, upload: UploadId) -> Result<Box<dyn PlaceWriter>, BlobError> {
        Ok(Box::new(StoreWriter {
            store: self.store.clone(),
            upload,
            written: BTreeSet::new(),
        }))
    }

    fn as_values(
        &self,
        upload: UploadId,
        bytes: &Bytes,
        manifest: &Manifest,
    ) -> Option<Vec<(String, Bytes)>> {
        let chunk = |hash: &ContentId| (chunk_key(upload, *hash), packed::pack(bytes.clone()));
        let mut values: Vec<_> = manifest.chunks.iter().map(chunk).collect();
        values.push((manifest_key(upload), manifest.encode().into()));
        Some(values)
    }

    fn max_size(&self) -> Option<u64> {
        Some(self.max_size)
    }

    async fn open(
        &self,
        id: ContentId,
        upload: UploadId,
    ) -> Result<Box<dyn PlaceReader>, BlobError> {
        let Some(stored) = self.store.get(&manifest_key(upload)).await? else {
            return Err(BlobError::damaged(id, "its chunks are missing"));
        };
        let manifest =
            Manifest::decode(&stored.value).map_err(|what| BlobError::damaged(id, what))?;
        Ok(Box::new(StoreReader {
            store: self.store.clone(),
            id,
            upload,
            manifest,
        }))
    }

    async fn remove(&self, stored: StoredUpload) -> Result<(), BlobError> {
        let transaction = Transaction::new().delete_prefix(chunks_prefix(stored.upload));
        settle(&*self.store, transaction).await?;
        Ok(())
    }

    async fn stored(&self) -> Result<Vec<StoredUpload>, BlobError> {
        let names = key_scan::first_parts(&*self.store, CHUNKS, "").await?;
        let uploads = names.iter().filter_map(|name| UploadId::parse(name));
        Ok(uploads
            .map(|upload| StoredUpload {
                place: ContentPlace::Default,
                upload,
                id: None,
            })
            .collect())
    }
}

struct StoreWriter {
    store: SharedStore,
    upload: UploadId,
    written: BTreeSet<ContentId>,
}

impl StoreWriter {
    /// Writes only while the upload is in progress: anything written after it was given up would
    /// stay for ever.
    async fn put(&self, key: String, value: Bytes) -> Result<(), BlobError> {
        let transaction = Transaction::new()
            .when(Compare::Exists(upload_key(self.upload)))
            .put(key, value);
        let outcome = settle(&*self.store, transaction).await?;
        if outcome.is_committed() {
            Ok(())
        } else {
            Err(BlobError::LeaseEnded)
        }
    }
}

#[async_trait]
impl PlaceWriter for StoreWriter {
    async fn chunk(&mut self, hash: ContentId, bytes: Bytes) -> Result<(), BlobError> {
        if self.written.insert(hash) {
            let stored = packed::pack(bytes);
            self.put(chunk_key(self.upload, hash), stored).await?;
        }
        Ok(())
    }

    async fn finish(self: Box<Self>, _id: ContentId, manifest: &Manifest) -> Result<(), BlobError> {
        self.put(manifest_key(self.upload), manifest.encode().into())
            .await
    }
}

struct StoreReader {
    store: SharedStore,
    id: ContentId,
    upload: UploadId,
    manifest: Manifest,
}

#[async_trait]
impl PlaceReader for StoreReader {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    async fn chunk(&self, index: usize) -> Result<Bytes, BlobError> {
        let key = chunk_key(self.upload, self.manifest.chunks[index]);
        match self.store.get(&key).await? {
            Some(stored) => Ok(packed::unpack(
                stored.value,
                self.manifest.chunk_length(index),
            )),
            None => Err(BlobError::damaged(self.id, "one of its chunks is missing")),
        }
    }
}
