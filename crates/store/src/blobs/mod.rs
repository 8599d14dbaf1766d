//! Content-addressed bytes, of any size, that are there as long as something
//! refers to them.
//!
//! [`Blobs`] is what others use. Its one implementation, [`KeptBlobs`], keeps
//! a small record per content in the store and the bytes in a *place*: a
//! directory ([`DirectoryBlobs`], for one server or a shared file system) or
//! chunks in the store itself ([`StoreBlobs`], for clusters).
//!
//! Rules that keep it right, with several servers on one store:
//!
//! - Every writing has an *upload* number of its own, and its bytes are under
//!   that number. Nobody else ever writes or replaces them, so removing them
//!   late, or twice, cannot hit what someone wrote since.
//! - `blobs/<id>` says which upload holds the content. Bytes without a record
//!   do not exist for readers. A record comes after its bytes are durable and
//!   goes before they do.
//! - While it is written, `blob-uploads/<upload>` lives on a lease. The record
//!   is made in the transaction that ends it. An upload with neither is debris
//!   and can never come to life.
//! - A pin (`blob-pins/<id>/<pin>`, on a lease) or a reference
//!   (`blob-refs/<id>/<referrer>`) is made in a transaction that compares the
//!   record's value and writes the record again. The collector compares the
//!   record's revision, so it loses to whatever came after it looked.
//! - What nothing refers to is first condemned, and removed only when it still
//!   is after a grace time. A pin or a reference takes the sentence back.
//!
//! Bytes are verified whenever they are read. They are hashed in chunks
//! beside the hash of the whole, so that a part can be verified without
//! reading the rest: each chunk is checked before it is handed out, and the
//! last one of a whole reading only after the hash of everything was right.
//! The chunks' hashes guard against damage, not against someone who can write
//! the files: a reader of a part who must not trust the server hashes the whole.
//!
//! Sharing equal chunks between contents was considered and left: it would
//! need a count per chunk, and the same race once more on every one of them.

mod collect;
mod directory;
mod error;
mod kept;
mod manifest;
mod place;
mod put;
mod read;
mod record;
mod refer;
mod scrub;
mod store_place;

use std::ops::Range;
use std::pin::Pin as Pinned;
use std::sync::Arc;

use async_trait::async_trait;
use bunraku_model::ContentId;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use tokio::io::AsyncRead;

pub use collect::Collected;
pub use directory::{DirectoryBlobs, DirectoryPlace};
pub use error::BlobError;
pub use kept::{BlobOptions, KeptBlobs};
pub use manifest::CHUNK_SIZE;
pub use refer::Pin;
pub use scrub::Scrubbed;
pub use store_place::{StoreBlobs, StorePlace};

use crate::Transaction;

/// Blobs that are shared by everything in a process.
pub type SharedBlobs = Arc<dyn Blobs>;

/// Verified bytes, in order. After an error it ends; without one it is whole.
pub type BlobStream = Pinned<Box<dyn Stream<Item = Result<Bytes, BlobError>> + Send>>;

/// What is known of a content without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobInfo {
    pub id: ContentId,
    pub size: u64,
}

/// Content that was written, and the time to refer to it.
#[derive(Debug)]
pub struct PinnedBlob {
    pub info: BlobInfo,
    pub pin: Pin,
}

/// Content-addressed bytes. See the module's notes for the rules.
#[async_trait]
pub trait Blobs: Send + Sync + 'static {
    /// Writes what `source` gives until it ends. When this returns it is
    /// durable, and pinned until the pin's time is over: refer to it until then.
    ///
    /// With `expected`, anything else is refused and nothing is kept. A stream
    /// of bytes becomes a source with `tokio_util::io::StreamReader`.
    async fn put(
        &self,
        source: &mut (dyn AsyncRead + Send + Unpin),
        expected: Option<ContentId>,
    ) -> Result<PinnedBlob, BlobError>;

    /// Everything, verified.
    async fn open(&self, id: ContentId) -> Result<BlobStream, BlobError>;

    /// Everything in memory, verified: for what is known to be small enough.
    async fn read(&self, id: ContentId) -> Result<Vec<u8>, BlobError> {
        let mut stream = self.open(id).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    }

    /// A part, verified: `0..1` is the first byte.
    async fn open_range(&self, id: ContentId, range: Range<u64>) -> Result<BlobStream, BlobError>;

    /// The size, if it is there and not known to be damaged.
    async fn size(&self, id: ContentId) -> Result<Option<u64>, BlobError>;

    /// Whether it is there and not known to be damaged.
    async fn has(&self, id: ContentId) -> Result<bool, BlobError> {
        Ok(self.size(id).await?.is_some())
    }

    /// What is there, in order of id, after `after`; an empty page is the end.
    async fn list(&self, after: Option<ContentId>) -> Result<Vec<BlobInfo>, BlobError>;

    /// Keeps what is there from being collected for a while.
    async fn pin(&self, id: ContentId) -> Result<Pin, BlobError>;

    /// Keeps it until [`Blobs::unreference`] with the same referrer.
    async fn reference(&self, id: ContentId, referrer: &str) -> Result<(), BlobError>;

    /// Adds the reference to a transaction of the caller's, so that both are
    /// done or neither. When it is refused, start again from here.
    async fn reference_in(
        &self,
        transaction: Transaction,
        id: ContentId,
        referrer: &str,
    ) -> Result<Transaction, BlobError>;

    /// Takes a reference back. No error if there is none.
    async fn unreference(&self, id: ContentId, referrer: &str) -> Result<(), BlobError>;

    /// Adds taking a reference back to a transaction of the caller's.
    fn unreference_in(
        &self,
        transaction: Transaction,
        id: ContentId,
        referrer: &str,
    ) -> Result<Transaction, BlobError>;

    /// Who refers to it, in order.
    async fn references(&self, id: ContentId) -> Result<Vec<String>, BlobError>;

    /// Condemns what nothing refers to, removes what was condemned a grace
    /// time ago, and clears away what crashed writers left. Safe at any time,
    /// on any number of servers at once.
    async fn collect(&self, now: Timestamp) -> Result<Collected, BlobError>;

    /// Reads everything and notes what is damaged. Writing such content again mends it.
    async fn scrub(&self) -> Result<Scrubbed, BlobError>;
}
