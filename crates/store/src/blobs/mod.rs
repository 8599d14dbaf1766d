//! Content-addressed bytes of any size, kept as long as something refers to them.
//!
//! Other crates use [`Blobs`]. Its only implementation, [`BlobStore`], keeps a small record per
//! content in the store and the bytes in a *place*: a directory (for one server or a shared file
//! system), chunks in the store itself (for small clusters), or objects in S3 (for large ones). A
//! record names its place, so content can be in two places while it is moved.
//!
//! These rules keep it correct with several servers on one store:
//!
//! - Every write has its own *upload* number, and its bytes are stored under that number. Nobody
//!   else ever writes or replaces them, so removing them late, or twice, cannot hit newer bytes.
//! - `blobs/<id>` names the upload that holds the content. Bytes without a record do not exist for
//!   readers. A record is created after its bytes are durable and is deleted before its bytes are.
//! - During a write, `blob-uploads/<upload>` exists with a lease. The transaction that ends the
//!   upload creates the record. An upload with neither is debris and can never become content.
//! - A pin (`blob-pins/<id>/<pin>`, with a lease) or a reference (`blob-refs/<id>/<referrer>`) is
//!   created in a transaction that compares the record's value and writes the record again. The
//!   collector compares the record's revision, so it loses to every change after its read.
//! - Content without references is first condemned. It is removed only when it still has no
//!   references after a grace time. A pin or a reference lifts the condemnation.
//!
//! Bytes are verified on every read. They are hashed in chunks and as a whole, so that a part can
//! be verified without reading the rest. Each chunk is checked before it is returned. A read of the
//! whole content returns the last chunk only after the hash of the whole matched. The chunks'
//! hashes protect against damage, not against someone who can write the files: a reader of a part
//! who must not trust the server hashes the whole.
//!
//! Sharing equal chunks between contents was considered and rejected: it needs a count per chunk,
//! and the same race again on each of them.

mod collect;
mod directory;
mod error;
mod key_scan;
mod manifest;
mod object_failure;
mod object_format;
mod object_http;
mod object_options;
mod object_place;
mod packed;
mod place;
mod places;
mod put;
mod read;
mod record;
mod refer;
mod relocate;
mod scrub;
mod small;
mod store_place;
mod stored;
mod usage;

use std::ops::Range;
use std::pin::Pin as Pinned;
use std::sync::Arc;

use async_trait::async_trait;
pub use bunraku_model::ContentPlace;

use bunraku_model::ContentId;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use tokio::io::AsyncRead;

pub use collect::CollectionSummary;
pub use error::BlobError;
pub use manifest::CHUNK_SIZE;
pub use object_options::{S3Credentials, S3Options};
pub use refer::{Pin, Pins};
pub use relocate::RelocationSummary;
pub use scrub::ScrubSummary;
pub use stored::{BlobOptions, BlobStore};
pub use usage::{ContentUsage, PlaceUsage};

use crate::Transaction;

/// Blobs shared by everything in a process.
pub type SharedBlobs = Arc<dyn Blobs>;

/// Blobs whose default place is a directory.
pub type DirectoryBlobs = BlobStore;

/// Blobs whose default place is the store.
pub type StoreBlobs = BlobStore;

/// A stream of verified bytes, in order. It ends after an error; without an error it is complete.
pub type BlobStream = Pinned<Box<dyn Stream<Item = Result<Bytes, BlobError>> + Send>>;

/// The id and size of a content, known without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobInfo {
    pub id: ContentId,
    pub size: u64,
}

/// Written content, with a pin that allows time to refer to it.
#[derive(Debug)]
pub struct PinnedBlob {
    pub info: BlobInfo,
    pub pin: Pin,
}

#[cfg(feature = "testing")]
pub(crate) fn object_http_for_tests() -> impl object_store::client::HttpConnector {
    object_http::ObjectHttp::new("", std::time::Duration::from_secs(60)).expect("no CA is needed")
}

/// Content-addressed bytes. See the module documentation for the rules.
#[async_trait]
pub trait Blobs: Send + Sync + 'static {
    /// Writes the bytes of `source` until its end. When this returns, the content is durable and
    /// pinned. Refer to it before the pin ends.
    ///
    /// With `expected`, any other content is rejected and not kept. `tokio_util::io::StreamReader`
    /// turns a stream of bytes into a source.
    async fn put(
        &self,
        source: &mut (dyn AsyncRead + Send + Unpin),
        expected: Option<ContentId>,
    ) -> Result<PinnedBlob, BlobError>;

    /// Opens the whole content, verified.
    async fn open(&self, id: ContentId) -> Result<BlobStream, BlobError>;

    /// Reads the whole content into memory, verified. For content that is known to be small enough.
    async fn read(&self, id: ContentId) -> Result<Vec<u8>, BlobError> {
        let mut stream = self.open(id).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    }

    /// Opens a part of the content, verified: `0..1` is the first byte.
    async fn open_range(&self, id: ContentId, range: Range<u64>) -> Result<BlobStream, BlobError>;

    /// Returns the size, if the content exists and is not known to be damaged.
    async fn size(&self, id: ContentId) -> Result<Option<u64>, BlobError>;

    /// Returns whether the content exists and is not known to be damaged.
    async fn has(&self, id: ContentId) -> Result<bool, BlobError> {
        Ok(self.size(id).await?.is_some())
    }

    /// Lists existing contents after `after`, in order of id; an empty page is the end.
    async fn list(&self, after: Option<ContentId>) -> Result<Vec<BlobInfo>, BlobError>;

    /// Protects existing content from collection for a while.
    async fn pin(&self, id: ContentId) -> Result<Pin, BlobError>;

    /// Keeps the content until [`Blobs::unreference`] with the same referrer.
    async fn reference(&self, id: ContentId, referrer: &str) -> Result<(), BlobError>;

    /// Refers to many contents in few transactions. Returns those that do not exist or are damaged,
    /// which are not referred to.
    async fn reference_all(
        &self,
        ids: &[ContentId],
        referrer: &str,
    ) -> Result<Vec<ContentId>, BlobError>;

    /// Adds the reference to the caller's transaction, so that both take effect or neither. If the
    /// transaction is refused, start again from here.
    async fn reference_in(
        &self,
        transaction: Transaction,
        id: ContentId,
        referrer: &str,
    ) -> Result<Transaction, BlobError>;

    /// Removes a reference. It is not an error if the reference does not exist.
    async fn unreference(&self, id: ContentId, referrer: &str) -> Result<(), BlobError>;

    /// Adds the removal of a reference to the caller's transaction.
    fn unreference_in(
        &self,
        transaction: Transaction,
        id: ContentId,
        referrer: &str,
    ) -> Result<Transaction, BlobError>;

    /// Returns the referrers of the content, in order.
    async fn references(&self, id: ContentId) -> Result<Vec<String>, BlobError>;

    /// Condemns content without references, removes content whose grace time is over, and clears
    /// away leftovers of crashed writers. Safe at any time, on any number of servers at once.
    async fn collect(&self, now: Timestamp) -> Result<CollectionSummary, BlobError>;

    /// Reads everything and marks damaged content. Writing such content again repairs it.
    async fn scrub(&self) -> Result<ScrubSummary, BlobError>;

    /// Returns the place that new content goes to.
    fn active_place(&self) -> ContentPlace;

    /// Returns whether this server can use the place.
    fn has_place(&self, place: ContentPlace) -> bool;

    /// Writes new content to this place from now on. Content in other places stays there.
    fn activate(&self, place: ContentPlace) -> Result<(), BlobError>;

    /// Copies content that is in another place to the active one, and removes it there: the 256th
    /// part of all content whose ids begin with this byte. Each content is verified before its record
    /// changes. Safe at any time, on any number of servers at once.
    async fn relocate(&self, share: u8) -> Result<RelocationSummary, BlobError>;

    /// Counts the contents and bytes of each place.
    async fn usage(&self) -> Result<ContentUsage, BlobError>;

    /// Returns the problem of the last request to S3, if it had one.
    fn s3_problem(&self) -> Option<String>;

    /// Checks that S3 is reachable and that objects can be written, read and removed. Does nothing
    /// if it is not configured.
    async fn check_s3(&self) -> Result<(), BlobError>;

    /// Returns a URL of the content for someone without credentials, valid for `valid_for`. The
    /// answer to it is a gzip file. `None` if the content is not in S3.
    async fn signed_url(
        &self,
        id: ContentId,
        valid_for: std::time::Duration,
    ) -> Result<Option<String>, BlobError>;
}
