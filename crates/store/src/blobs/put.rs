//! Writes content: bytes first, then the record that publishes them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bunraku_model::ContentId;
use bytes::{BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::manifest::{CHUNK_SIZE, Manifest};
use super::place::{Place, PlaceWriter, StoredUpload, UploadId};
use super::record::{BlobRecord, record_key, upload_key};
use super::refer::{Pin, add_conditions, new_pin_key};
use super::stored::{BlobStore, FoundRecord};
use super::{BlobError, BlobInfo, PinnedBlob};
use crate::{Compare, LeaseId, Swap, Transaction, compare_and_swap, settle};

type Source<'a> = &'a mut (dyn AsyncRead + Send + Unpin);

/// A write in progress.
struct Upload {
    id: UploadId,
    lease: LeaseId,
}

impl<P: Place> BlobStore<P> {
    pub(super) async fn write(
        &self,
        source: Source<'_>,
        expected: Option<ContentId>,
    ) -> Result<PinnedBlob, BlobError> {
        let first = read_chunk(source).await?;
        if first.len() < CHUNK_SIZE
            && let Some(written) = self.write_small(&first, expected).await?
        {
            return Ok(written);
        }
        let upload = self.begin().await?;
        let written = match self.write_upload(first, source, expected, &upload).await {
            Ok(info) => self.register(info, &upload).await.map(|()| info),
            Err(error) => {
                // It was never registered, so nobody can miss it.
                let stored = StoredUpload {
                    upload: upload.id,
                    id: None,
                };
                let _ = self.place.remove(stored).await;
                Err(error)
            }
        };
        match written {
            Ok(info) => Ok(PinnedBlob {
                info,
                pin: Pin {
                    id: info.id,
                    lease: upload.lease,
                    store: self.store.clone(),
                },
            }),
            Err(error) => {
                // The remains are debris now, which the collector removes.
                let _ = self.store.lease_revoke(upload.lease).await;
                Err(error)
            }
        }
    }

    async fn begin(&self) -> Result<Upload, BlobError> {
        let upload = Upload {
            id: UploadId::new(),
            lease: self.store.lease_grant(self.options.pin_for).await?,
        };
        let begin = Transaction::new().put_with_lease(upload_key(upload.id), "", upload.lease);
        settle(&*self.store, begin).await?;
        Ok(upload)
    }

    async fn write_upload(
        &self,
        first: Bytes,
        source: Source<'_>,
        expected: Option<ContentId>,
        upload: &Upload,
    ) -> Result<BlobInfo, BlobError> {
        let mut writer = self.place.begin(upload.id).await?;
        let (id, manifest) = self
            .write_chunks(first, source, &mut *writer, upload)
            .await?;
        if let Some(expected) = expected.filter(|expected| *expected != id) {
            return Err(BlobError::Mismatch {
                expected,
                found: id,
            });
        }
        writer.finish(id, &manifest).await?;
        Ok(BlobInfo {
            id,
            size: manifest.size,
        })
    }

    async fn write_chunks(
        &self,
        first: Bytes,
        source: Source<'_>,
        writer: &mut dyn PlaceWriter,
        upload: &Upload,
    ) -> Result<(ContentId, Manifest), BlobError> {
        let mut whole = Sha256::new();
        let mut manifest = Manifest {
            size: 0,
            chunks: Vec::new(),
        };
        let period = (self.options.pin_for / 3).max(Duration::from_millis(1));
        let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut first = Some(first);
        loop {
            let bytes = match first.take() {
                Some(first) => first,
                None => self.next_chunk(source, upload, &mut ticks).await?,
            };
            if bytes.is_empty() {
                return Ok((ContentId::from_digest(whole.finalize().into()), manifest));
            }
            manifest.size += bytes.len() as u64;
            if let Some(limit) = self.options.max_size.filter(|limit| manifest.size > *limit) {
                return Err(BlobError::TooLarge { limit });
            }
            whole.update(&bytes);
            let hash = ContentId::of(&bytes);
            manifest.chunks.push(hash);
            writer.chunk(hash, bytes).await?;
        }
    }

    /// Reads a full chunk, or the rest. Keeps the lease alive even when the source is silent for
    /// long.
    async fn next_chunk(
        &self,
        source: Source<'_>,
        upload: &Upload,
        ticks: &mut Interval,
    ) -> Result<Bytes, BlobError> {
        let mut buffer = BytesMut::with_capacity(CHUNK_SIZE);
        while buffer.len() < CHUNK_SIZE {
            let room = CHUNK_SIZE - buffer.len();
            let mut target = (&mut buffer).limit(room);
            tokio::select! {
                biased;
                _ = ticks.tick() => self.store.lease_keep_alive(upload.lease).await?,
                read = source.read_buf(&mut target) => {
                    if read.map_err(BlobError::Source)? == 0 {
                        break;
                    }
                }
            }
        }
        Ok(buffer.freeze())
    }

    /// Publishes the content and pins it. If it already exists and is sound, our own bytes are not
    /// needed; otherwise they replace it.
    async fn register(&self, info: BlobInfo, upload: &Upload) -> Result<(), BlobError> {
        let pin = new_pin_key(info.id);
        let tried = AtomicBool::new(false);
        let replaced = compare_and_swap(&*self.store, |_| async {
            let found = self.find(info.id).await?;
            if let Some(found) = &found
                && found.record.upload == upload.id
            {
                return Ok(Swap::Done(None));
            }
            if tried.swap(true, Ordering::Relaxed) && self.is_registered(upload, &pin).await? {
                return Ok(Swap::Done(None));
            }
            let keep_theirs = match &found {
                Some(found) => self.is_sound(info, &found.record).await?,
                None => false,
            };
            let transaction = registration(info, upload, &pin, found.as_ref(), keep_theirs);
            let unneeded = found.map(|found| {
                if keep_theirs {
                    upload.id
                } else {
                    found.record.upload
                }
            });
            Ok::<_, BlobError>(Swap::Write(transaction, unneeded))
        });
        if let Some(unneeded) = replaced.await? {
            self.remove_unneeded(info.id, unneeded).await;
        }
        Ok(())
    }

    /// Returns whether an attempt with an unknown outcome succeeded after all. After its lease has
    /// ended, an upload can no longer succeed.
    async fn is_registered(&self, upload: &Upload, pin: &str) -> Result<bool, BlobError> {
        if self.store.get(pin).await?.is_some() {
            return Ok(true);
        }
        if self.store.get(&upload_key(upload.id)).await?.is_some() {
            return Ok(false);
        }
        Err(BlobError::LeaseEnded)
    }

    /// Checks the manifest only. [`super::Blobs::scrub`] reads everything.
    pub(super) async fn is_sound(
        &self,
        info: BlobInfo,
        record: &BlobRecord,
    ) -> Result<bool, BlobError> {
        if record.damaged {
            return Ok(false);
        }
        match self.place.open(info.id, record.upload).await {
            Ok(reader) => Ok(reader.manifest().size == info.size),
            Err(error) if error.is_damage() => Ok(false),
            Err(other) => Err(other),
        }
    }

    pub(super) async fn remove_unneeded(&self, id: ContentId, unneeded: UploadId) {
        let stored = StoredUpload {
            upload: unneeded,
            id: Some(id),
        };
        if let Err(error) = self.place.remove(stored).await {
            tracing::warn!(%id, %error, "left for garbage collection");
        }
    }
}

/// Reads a full chunk, or the whole source if it is shorter. Nothing was begun yet, so there is no
/// lease to keep.
async fn read_chunk(source: Source<'_>) -> Result<Bytes, BlobError> {
    let mut buffer = BytesMut::new();
    while buffer.len() < CHUNK_SIZE {
        let room = CHUNK_SIZE - buffer.len();
        let mut target = (&mut buffer).limit(room);
        let read = source.read_buf(&mut target).await;
        if read.map_err(BlobError::Source)? == 0 {
            break;
        }
    }
    Ok(buffer.freeze())
}

fn registration(
    info: BlobInfo,
    upload: &Upload,
    pin: &str,
    found: Option<&FoundRecord>,
    keep_theirs: bool,
) -> Transaction {
    let key = record_key(info.id);
    let ours = BlobRecord {
        upload: upload.id,
        size: info.size,
        damaged: false,
        condemned: None,
    };
    let base = Transaction::new().when(Compare::Exists(upload_key(upload.id)));
    let base = match found {
        None => base
            .when(Compare::Absent(key.clone()))
            .put(key, ours.encode()),
        Some(found) if keep_theirs => add_conditions(base, info.id, found),
        Some(found) => base
            .when(Compare::Value(key.clone(), found.stored.value.clone()))
            .put(key, ours.encode()),
    };
    base.put_with_lease(pin, "", upload.lease)
        .delete(upload_key(upload.id))
}
