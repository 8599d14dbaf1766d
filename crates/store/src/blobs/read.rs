//! Reads content, and verifies it before returning any of it.

use std::ops::Range;

use bunraku_model::{ContentId, ContentPlace};
use bytes::Bytes;
use futures::{TryStreamExt, stream};
use sha2::{Digest, Sha256};

use super::manifest::CHUNK_SIZE;
use super::place::{PlaceReader, UploadId};
use super::stored::BlobStore;
use super::{BlobError, BlobStream};

/// An upload, and a reader of its bytes.
type OpenedUpload = (UploadId, Box<dyn PlaceReader>);

/// The state of a read.
struct ReadState {
    /// Where to look for the content if it is moved during the read.
    blobs: Option<BlobStore>,
    id: ContentId,
    upload: UploadId,
    reader: Box<dyn PlaceReader>,
    next: usize,
    /// The requested bytes.
    wanted: Range<u64>,
    /// The hash of the whole content, if all of it is read.
    whole: Option<Sha256>,
}

impl BlobStore {
    pub(super) async fn read_whole(&self, id: ContentId) -> Result<BlobStream, BlobError> {
        let (upload, reader) = self.reader(id).await?;
        let size = reader.manifest().size;
        if size == 0 && id != ContentId::of(b"") {
            return Err(BlobError::damaged(id, "it is empty"));
        }
        Ok(stream_of(ReadState {
            blobs: Some(self.clone()),
            id,
            upload,
            reader,
            next: 0,
            wanted: 0..size,
            whole: Some(Sha256::new()),
        }))
    }

    pub(super) async fn read_part(
        &self,
        id: ContentId,
        range: Range<u64>,
    ) -> Result<BlobStream, BlobError> {
        let (upload, reader) = self.reader(id).await?;
        let size = reader.manifest().size;
        if range.start > range.end || range.end > size {
            return Err(BlobError::OutOfRange {
                id,
                size,
                start: range.start,
                end: range.end,
            });
        }
        let first = range.start / CHUNK_SIZE as u64;
        Ok(stream_of(ReadState {
            blobs: Some(self.clone()),
            id,
            upload,
            reader,
            next: usize::try_from(first).unwrap_or(usize::MAX),
            wanted: range,
            whole: None,
        }))
    }

    /// Reads and verifies bytes that may have no record yet.
    pub(super) async fn verify(
        &self,
        id: ContentId,
        place: ContentPlace,
        upload: UploadId,
    ) -> Result<(), BlobError> {
        let reader = self.places.get(place)?.open(id, upload).await?;
        let size = reader.manifest().size;
        let mut stream = stream_of(ReadState {
            blobs: None,
            id,
            upload,
            reader,
            next: 0,
            wanted: 0..size,
            whole: Some(Sha256::new()),
        });
        while stream.try_next().await?.is_some() {}
        Ok(())
    }

    /// Opens the bytes that the record names. Content may be moved or replaced between the two
    /// reads, so bytes that are missing are looked for again where the record says then.
    async fn reader(&self, id: ContentId) -> Result<OpenedUpload, BlobError> {
        let mut found = self.find(id).await?.ok_or(BlobError::Missing(id))?;
        loop {
            if found.record.damaged {
                return Err(BlobError::damaged(id, "an earlier check found it corrupt"));
            }
            let failed = match self.places.open(id, &found.record).await {
                Ok(reader) if reader.manifest().size == found.record.size => {
                    return Ok((found.record.upload, reader));
                }
                Ok(_) => BlobError::damaged(id, "its size differs from the recorded one"),
                Err(error) => error,
            };
            let now = if failed.is_damage() {
                self.find(id).await?
            } else {
                None
            };
            match now.filter(|now| now.record.upload != found.record.upload) {
                Some(now) => found = now,
                None => return Err(failed),
            }
        }
    }
}

fn stream_of(reading: ReadState) -> BlobStream {
    Box::pin(stream::try_unfold(reading, |mut reading| async move {
        Ok(reading.next().await?.map(|bytes| (bytes, reading)))
    }))
}

impl ReadState {
    async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        let start = self.next as u64 * CHUNK_SIZE as u64;
        if start >= self.wanted.end || self.wanted.is_empty() {
            return Ok(None);
        }
        let bytes = match self.verified_chunk(self.next).await {
            Err(error) if error.is_damage() => self.chunk_elsewhere(error).await?,
            read => read?,
        };
        let end = start + bytes.len() as u64;
        self.next += 1;
        if let Some(whole) = &mut self.whole {
            whole.update(&bytes);
            if end == self.wanted.end {
                self.verify_whole()?;
            }
        }
        let from = self.wanted.start.saturating_sub(start);
        let to = self.wanted.end.min(end) - start;
        Ok(Some(bytes.slice(within(from)..within(to))))
    }

    async fn verified_chunk(&self, index: usize) -> Result<Bytes, BlobError> {
        let manifest = self.reader.manifest();
        let bytes = self.reader.chunk(index).await?;
        if bytes.len() != manifest.chunk_length(index)
            || ContentId::of(&bytes) != manifest.chunks[index]
        {
            let at = index as u64 * CHUNK_SIZE as u64;
            return Err(BlobError::damaged(
                self.id,
                format!("the chunk at byte {at} is corrupt"),
            ));
        }
        Ok(bytes)
    }

    /// Reads the next chunk from where the content is now, if it was moved during this read.
    async fn chunk_elsewhere(&mut self, failed: BlobError) -> Result<Bytes, BlobError> {
        let Some(blobs) = &self.blobs else {
            return Err(failed);
        };
        let (upload, reader) = match blobs.reader(self.id).await {
            Ok(opened) => opened,
            Err(error) if error.is_damage() => return Err(failed),
            Err(error) => return Err(error),
        };
        if upload == self.upload || reader.manifest() != self.reader.manifest() {
            return Err(failed);
        }
        (self.upload, self.reader) = (upload, reader);
        self.verified_chunk(self.next).await
    }

    fn verify_whole(&mut self) -> Result<(), BlobError> {
        let digest = self.whole.take().map(|whole| whole.finalize().into());
        if digest.map(ContentId::from_digest) == Some(self.id) {
            return Ok(());
        }
        Err(BlobError::damaged(
            self.id,
            "its chunks are intact, but its hash does not match",
        ))
    }
}

/// Returns the position within its chunk.
fn within(position: u64) -> usize {
    usize::try_from(position).expect("a chunk is smaller than memory")
}
