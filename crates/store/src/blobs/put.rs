//! Writes content: bytes first, then the record that publishes them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bunraku_model::{ContentId, ContentPlace};
use bytes::{BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, MissedTickBehavior};

use super::manifest::{CHUNK_SIZE, Manifest};
use super::place::{PlaceWriter, StoredUpload, UploadId};
use super::record::{BlobRecord, record_key, upload_key};
use super::refer::{Pin, add_conditions, new_pin_key};
use super::stored::{BlobStore, FoundRecord};
use super::{BlobError, BlobInfo, PinnedBlob};
use crate::{Compare, LeaseId, Swap, Transaction, compare_and_swap, settle};

type Source<'a> = &'a mut (dyn AsyncRead + Send + Unpin);

/// A write in progress.
pub(super) struct Upload {
    pub(super) place: ContentPlace,
    pub(super) id: UploadId,
    pub(super) lease: LeaseId,
}

impl Upload {
    /// Returns its bytes, which may be complete.
    pub(super) fn bytes_of(&self, id: ContentId) -> StoredUpload {
        StoredUpload {
            id: Some(id),
            ..self.bytes()
        }
    }

    pub(super) fn bytes(&self) -> StoredUpload {
        StoredUpload {
            place: self.place,
            upload: self.id,
            id: None,
        }
    }
}

impl BlobStore {
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
        let lease = self.store.lease_grant(self.options.pin_for).await?;
        let written = self.keeping_alive(lease, async {
            let upload = self.begin(self.places.active(), lease).await?;
            match self.write_upload(first, source, expected, &upload).await {
                Ok(info) => self.register(info, &upload).await.map(|()| info),
                Err(error) => {
                    // It was never registered, so nobody can miss it.
                    let _ = self.places.remove(upload.bytes()).await;
                    Err(error)
                }
            }
        });
        match written.await {
            Ok(info) => Ok(PinnedBlob {
                info,
                pin: Pin {
                    id: info.id,
                    lease,
                    store: self.store.clone(),
                },
            }),
            Err(error) => {
                // The remains are debris now, which the collector removes.
                let _ = self.store.lease_revoke(lease).await;
                Err(error)
            }
        }
    }

    /// Announces an upload, so that nobody takes its bytes for debris while the lease lasts.
    pub(super) async fn begin(
        &self,
        place: ContentPlace,
        lease: LeaseId,
    ) -> Result<Upload, BlobError> {
        let id = UploadId::new();
        let upload = Upload { place, id, lease };
        let begin = Transaction::new().put_with_lease(upload_key(id), "", lease);
        settle(&*self.store, self.places.add_note(begin, upload.bytes())?).await?;
        Ok(upload)
    }

    /// Keeps the lease alive until the work is done, however slow its source or its place is.
    pub(super) async fn keeping_alive<T>(
        &self,
        lease: LeaseId,
        work: impl Future<Output = Result<T, BlobError>>,
    ) -> Result<T, BlobError> {
        let period = (self.options.pin_for / 3).max(Duration::from_millis(1));
        let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = ticks.tick() => self.store.lease_keep_alive(lease).await?,
            }
        }
    }

    async fn write_upload(
        &self,
        first: Bytes,
        source: Source<'_>,
        expected: Option<ContentId>,
        upload: &Upload,
    ) -> Result<BlobInfo, BlobError> {
        let place = self.places.get(upload.place)?;
        let mut writer = place.begin(upload.id).await?;
        let limit = self.size_limit(upload.place)?;
        let (id, manifest) = write_chunks(first, source, &mut *writer, limit).await?;
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

    /// Returns the size above which content is refused.
    pub(super) fn size_limit(&self, place: ContentPlace) -> Result<Option<u64>, BlobError> {
        let limits = [self.options.max_size, self.places.get(place)?.max_size()];
        Ok(limits.into_iter().flatten().min())
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
            let transaction = self.registration(info, upload, &pin, found.as_ref(), keep_theirs)?;
            let unneeded = found.map(|found| {
                if keep_theirs {
                    upload.bytes_of(info.id)
                } else {
                    found.record.bytes(info.id)
                }
            });
            Ok::<_, BlobError>(Swap::Write(transaction, unneeded))
        });
        if let Some(unneeded) = replaced.await? {
            self.remove_unneeded(unneeded).await;
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
        match self.places.open(info.id, record).await {
            Ok(reader) => Ok(reader.manifest().size == info.size),
            Err(error) if error.is_damage() => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Removes bytes that have no record. Returns whether they are gone; otherwise the next
    /// collection removes them.
    pub(super) async fn remove_unneeded(&self, unneeded: StoredUpload) -> bool {
        match self.places.remove(unneeded).await {
            Ok(()) => true,
            Err(error) => {
                let upload = unneeded.upload;
                let error = bunraku_model::error_chain(&error);
                tracing::warn!(%upload, error, "left for garbage collection");
                false
            }
        }
    }

    fn registration(
        &self,
        info: BlobInfo,
        upload: &Upload,
        pin: &str,
        found: Option<&FoundRecord>,
        keep_theirs: bool,
    ) -> Result<Transaction, BlobError> {
        let key = record_key(info.id);
        let ours = BlobRecord {
            upload: upload.id,
            place: upload.place,
            size: info.size,
            damaged: false,
            condemned: None,
        };
        let base = Transaction::new().when(Compare::Exists(upload_key(upload.id)));
        let base = match found {
            None => {
                let base = base.when(Compare::Absent(key.clone()));
                self.places.remove_note(base, upload.bytes())?
            }
            Some(found) if keep_theirs => add_conditions(base, info.id, found),
            Some(found) => {
                let base = base.when(Compare::Value(key.clone(), found.stored.value.clone()));
                let base = self.places.remove_note(base, upload.bytes())?;
                self.places.add_note(base, found.record.bytes(info.id))?
            }
        };
        let base = if keep_theirs {
            base
        } else {
            base.put(key, ours.encode())
        };
        Ok(base
            .put_with_lease(pin, "", upload.lease)
            .delete(upload_key(upload.id)))
    }
}

async fn write_chunks(
    first: Bytes,
    source: Source<'_>,
    writer: &mut dyn PlaceWriter,
    limit: Option<u64>,
) -> Result<(ContentId, Manifest), BlobError> {
    let mut whole = Sha256::new();
    let mut manifest = Manifest {
        size: 0,
        chunks: Vec::new(),
    };
    let mut bytes = first;
    while !bytes.is_empty() {
        manifest.size += bytes.len() as u64;
        if let Some(limit) = limit.filter(|limit| manifest.size > *limit) {
            return Err(BlobError::TooLarge { limit });
        }
        whole.update(&bytes);
        let hash = ContentId::of(&bytes);
        manifest.chunks.push(hash);
        writer.chunk(hash, bytes).await?;
        bytes = read_chunk(source).await?;
    }
    Ok((ContentId::from_digest(whole.finalize().into()), manifest))
}

/// Reads a full chunk, or the rest of the source if it is shorter.
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
