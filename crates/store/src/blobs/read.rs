//! Reads content, and verifies it before returning any of it.

use std::ops::Range;

use bunraku_model::ContentId;
use bytes::Bytes;
use futures::stream;
use sha2::{Digest, Sha256};

use super::manifest::CHUNK_SIZE;
use super::place::{Place, PlaceReader};
use super::stored::BlobStore;
use super::{BlobError, BlobStream};

/// The state of a read.
struct ReadState {
    id: ContentId,
    reader: Box<dyn PlaceReader>,
    next: usize,
    /// The requested bytes.
    wanted: Range<u64>,
    /// The hash of the whole content, if all of it is read.
    whole: Option<Sha256>,
}

impl<P: Place> BlobStore<P> {
    pub(super) async fn read_whole(&self, id: ContentId) -> Result<BlobStream, BlobError> {
        let reader = self.reader(id).await?;
        let size = reader.manifest().size;
        if size == 0 && id != ContentId::of(b"") {
            return Err(BlobError::damaged(id, "it is empty"));
        }
        Ok(stream_of(ReadState {
            id,
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
        let reader = self.reader(id).await?;
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
            id,
            reader,
            next: usize::try_from(first).unwrap_or(usize::MAX),
            wanted: range,
            whole: None,
        }))
    }

    async fn reader(&self, id: ContentId) -> Result<Box<dyn PlaceReader>, BlobError> {
        let found = self.find(id).await?.ok_or(BlobError::Missing(id))?;
        if found.record.damaged {
            return Err(BlobError::damaged(id, "an earlier check found it corrupt"));
        }
        let reader = self.place.open(id, found.record.upload).await?;
        if reader.manifest().size != found.record.size {
            return Err(BlobError::damaged(
                id,
                "its size differs from the recorded one",
            ));
        }
        Ok(reader)
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
        let bytes = self.verified_chunk(self.next).await?;
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
