//! Bytes as objects in an S3-compatible object store.
//!
//! `PREFIX/content/<aa>/<upload>` holds a whole content ([`object_format`]); `aa` are the upload's
//! first two digits, which spread the names. A name carries no content id: the id of large content
//! is known only when its last byte is sent. Content above 8 MiB is sent in parts (a multipart
//! upload), so memory is bounded.
//!
//! Objects are never listed. Each upload has a note in the store (see [`super::place`]), which also
//! holds the id of an unfinished multipart upload: bytes are sent only after it is noted. So whoever
//! clears away after a crash knows exactly what may exist, however many objects the bucket holds.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bunraku_model::{ContentId, ContentPlace};
use bytes::{Bytes, BytesMut};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{
    Attribute, Attributes, BackoffConfig, Error as ObjectError, GetOptions, GetRange, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, RetryConfig,
};

use super::BlobError;
use super::manifest::Manifest;
use super::object_failure::ObjectFailure;
use super::object_format::{self, LAST_MEMBER, ObjectIndex};
use super::object_http::{ObjectHealth, ObjectHttp};
use super::object_options::{CredentialsFile, S3Credentials, S3Options};
use super::place::{Place, PlaceReader, PlaceWriter, StoredUpload, UploadId};
use super::record::{OBJECTS, object_key, upload_key};
use crate::{Compare, Range, SharedStore, Transaction, settle};

/// The size of a part. All but the last have it: some object stores require that.
const PART: usize = 8 * 1024 * 1024;
/// The end of an object that is read first. It holds the whole of most objects.
const TAIL: u64 = 64 * 1024;
/// The most chunks that are read with one request.
const CHUNKS_AT_ONCE: usize = 8;
/// An object has at most 10,000 parts.
const MAX_SIZE: u64 = 64 * 1024 * 1024 * 1024;
const MAX_RETRIES: usize = 10;

/// An S3-compatible object store. Clones share everything.
#[derive(Clone)]
pub(super) struct ObjectPlace {
    s3: Arc<AmazonS3>,
    health: ObjectHealth,
    store: SharedStore,
    prefix: String,
    bucket: String,
}

impl ObjectPlace {
    pub(super) fn new(store: SharedStore, options: &S3Options) -> Result<Self, BlobError> {
        let wrong = |why: String| BlobError::Object {
            doing: "use the settings for S3".to_owned(),
            source: ObjectFailure::new(why),
        };
        let http = ObjectHttp::new(&options.ca_pem, options.request_timeout)
            .map_err(|error| wrong(format!("the CA certificates are invalid: {error}")))?;
        let health = http.health.clone();
        let s3 = builder(options, http).map_err(wrong)?;
        Ok(Self {
            health,
            s3: Arc::new(s3),
            store,
            prefix: options.prefix.trim_matches('/').to_owned(),
            bucket: options.bucket.clone(),
        })
    }

    fn path(&self, upload: UploadId) -> Path {
        let name = upload.to_string();
        Path::from(format!("{}/content/{}/{name}", self.prefix, &name[..2]))
    }

    /// Returns the name of an object, for people.
    fn name(&self, path: &Path) -> String {
        format!("s3://{}/{path}", self.bucket)
    }

    fn failed(&self, doing: &str, path: &Path) -> impl FnOnce(ObjectError) -> BlobError {
        let (doing, health) = (format!("{doing} {}", self.name(path)), self.health.clone());
        move |error| {
            let source = ObjectFailure::from(error);
            health.set(Some(format!("cannot {doing}: {source}")));
            BlobError::Object { doing, source }
        }
    }

    /// Returns the problem of the last request, if it had one.
    pub(super) fn problem(&self) -> Option<String> {
        self.health.problem()
    }

    /// Writes, reads and removes an object.
    pub(super) async fn check(&self) -> Result<(), BlobError> {
        let path = Path::from(format!("{}/check/{}", self.prefix, UploadId::new()));
        let content = Bytes::from_static(b"This object can be deleted.\n");
        let put = self.s3.put(&path, content.clone().into()).await;
        put.map_err(self.failed("write", &path))?;
        let read = async { self.s3.get(&path).await?.bytes().await };
        let read = read.await.map_err(self.failed("read", &path))?;
        let removed = self.s3.delete(&path).await;
        removed.map_err(self.failed("remove", &path))?;
        if read != content {
            return Err(BlobError::Object {
                doing: format!("read {}", self.name(&path)),
                source: ObjectFailure::new("it differs from what was written"),
            });
        }
        Ok(())
    }

    pub(super) async fn signed_url(
        &self,
        upload: UploadId,
        valid_for: Duration,
    ) -> Result<String, BlobError> {
        let path = self.path(upload);
        let url = self.s3.signed_url(http::Method::GET, &path, valid_for);
        let url = url.await.map_err(self.failed("sign a URL of", &path))?;
        Ok(url.to_string())
    }

    /// Reads a part of an object, with the object's size.
    async fn read(
        &self,
        id: ContentId,
        path: &Path,
        range: GetRange,
    ) -> Result<(Bytes, u64), BlobError> {
        let options = GetOptions {
            range: Some(range),
            ..GetOptions::default()
        };
        let read = async {
            let answer = self.s3.get_opts(path, options).await?;
            let size = answer.meta.size;
            Ok((answer.bytes().await?, size))
        };
        match read.await {
            Ok(read) => Ok(read),
            Err(ObjectError::NotFound { .. }) => Err(BlobError::damaged(
                id,
                format!("{} does not exist", self.name(path)),
            )),
            Err(error) => Err(self.failed("read", path)(error)),
        }
    }
}

fn builder(options: &S3Options, http: ObjectHttp) -> Result<AmazonS3, String> {
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: MAX_RETRIES,
        retry_timeout: options.retry_for,
    };
    let builder = AmazonS3Builder::new()
        .with_http_connector(http)
        .with_bucket_name(&options.bucket)
        .with_region(&options.region)
        .with_virtual_hosted_style_request(!options.path_style)
        .with_retry(retry)
        // Not every object store has it, and we remove one at a time.
        .with_disable_bulk_delete(true);
    let builder = match &options.endpoint {
        None => builder,
        Some(endpoint) => {
            let (scheme, host) = endpoint
                .split_once("://")
                .filter(|(scheme, _)| matches!(*scheme, "http" | "https"))
                .ok_or_else(|| format!("`{endpoint}` does not begin with https:// or http://"))?;
            let host = host.trim_end_matches('/');
            let address = if options.path_style {
                format!("{scheme}://{host}")
            } else {
                format!("{scheme}://{}.{host}", options.bucket)
            };
            builder
                .with_endpoint(address)
                .with_allow_http(scheme == "http")
        }
    };
    let builder = match &options.credentials {
        S3Credentials::MachineRole => builder,
        S3Credentials::File(path) => {
            builder.with_credentials(Arc::new(CredentialsFile(path.clone())))
        }
        S3Credentials::Keys {
            access_key,
            secret_key,
            session_token,
        } => {
            let builder = builder
                .with_access_key_id(access_key)
                .with_secret_access_key(secret_key);
            match session_token {
                Some(token) => builder.with_token(token),
                None => builder,
            }
        }
    };
    builder.build().map_err(|error| error.to_string())
}

#[async_trait]
impl Place for ObjectPlace {
    async fn begin(&self, upload: UploadId) -> Result<Box<dyn PlaceWriter>, BlobError> {
        Ok(Box::new(ObjectWriter {
            place: self.clone(),
            upload,
            path: self.path(upload),
            packed_lengths: Vec::new(),
            buffer: BytesMut::new(),
            multipart: None,
        }))
    }

    fn note(&self, upload: UploadId) -> Option<String> {
        Some(object_key(upload))
    }

    fn max_size(&self) -> Option<u64> {
        Some(MAX_SIZE)
    }

    async fn open(
        &self,
        id: ContentId,
        upload: UploadId,
    ) -> Result<Box<dyn PlaceReader>, BlobError> {
        let path = self.path(upload);
        let damaged = |what| BlobError::damaged(id, format!("{}: {what}", self.name(&path)));
        let (mut tail, size) = self.read(id, &path, GetRange::Suffix(TAIL)).await?;
        let end = object_format::end_length(&tail).map_err(damaged)?;
        if end > size {
            return Err(damaged("it is truncated"));
        }
        if end > tail.len() as u64 {
            (tail, _) = self.read(id, &path, GetRange::Suffix(end)).await?;
        }
        let at = usize::try_from(tail.len() as u64 - end.min(tail.len() as u64));
        let at = at.map_err(|_| damaged("it is too long"))?;
        let index = object_format::decode_end(&tail[at..], size).map_err(damaged)?;
        Ok(Box::new(ObjectReader {
            window: Mutex::new(Window {
                start: size - tail.len() as u64,
                bytes: tail,
                next: 0,
                chunks: 1,
            }),
            place: self.clone(),
            path,
            id,
            index,
        }))
    }

    async fn remove(&self, stored: StoredUpload) -> Result<(), BlobError> {
        let (path, key) = (self.path(stored.upload), object_key(stored.upload));
        let Some(note) = self.store.get(&key).await? else {
            // The bytes were removed before the note.
            return Ok(());
        };
        let multipart = String::from_utf8_lossy(&note.value).into_owned();
        if !multipart.is_empty() {
            match self.s3.abort_multipart(&path, &multipart).await {
                Ok(()) | Err(ObjectError::NotFound { .. }) => {}
                Err(error) => return Err(self.failed("remove the parts of", &path)(error)),
            }
        }
        match self.s3.delete(&path).await {
            Ok(()) | Err(ObjectError::NotFound { .. }) => {}
            Err(error) => return Err(self.failed("remove", &path)(error)),
        }
        settle(&*self.store, Transaction::new().delete(key)).await?;
        Ok(())
    }

    async fn stored(&self) -> Result<Vec<StoredUpload>, BlobError> {
        let (mut stored, mut range) = (Vec::new(), Range::prefix(OBJECTS));
        range.keys_only = true;
        loop {
            let page = self.store.range(range.clone()).await?;
            range.after = page.items.last().map(|item| item.key.clone());
            let names = page.items.iter().map(|item| &item.key[OBJECTS.len()..]);
            stored.extend(
                names
                    .filter_map(UploadId::parse)
                    .map(|upload| StoredUpload {
                        place: ContentPlace::S3,
                        upload,
                        id: None,
                    }),
            );
            if !page.more {
                return Ok(stored);
            }
        }
    }
}

/// A content that is being sent in parts.
struct Multipart {
    id: String,
    parts: Vec<PartId>,
}

struct ObjectWriter {
    place: ObjectPlace,
    upload: UploadId,
    path: Path,
    packed_lengths: Vec<u32>,
    /// Bytes that are not sent yet.
    buffer: BytesMut,
    multipart: Option<Multipart>,
}

fn attributes() -> Attributes {
    Attributes::from_iter([(Attribute::ContentType, "application/gzip")])
}

impl ObjectWriter {
    /// Sends all full parts.
    async fn send_parts(&mut self) -> Result<(), BlobError> {
        while self.buffer.len() >= PART {
            let part = self.buffer.split_to(PART).freeze();
            self.send_part(part).await?;
        }
        Ok(())
    }

    async fn send_part(&mut self, part: Bytes) -> Result<(), BlobError> {
        let mut multipart = match self.multipart.take() {
            Some(multipart) => multipart,
            None => self.begin_multipart().await?,
        };
        let (number, payload) = (multipart.parts.len(), PutPayload::from(part));
        let sent = (self.place.s3)
            .put_part(&self.path, &multipart.id, number, payload)
            .await;
        multipart
            .parts
            .push(sent.map_err(self.place.failed("write a part of", &self.path))?);
        self.multipart = Some(multipart);
        Ok(())
    }

    /// Begins a multipart upload, and notes it before any byte is sent.
    async fn begin_multipart(&self) -> Result<Multipart, BlobError> {
        let options = PutMultipartOptions {
            attributes: attributes(),
            ..PutMultipartOptions::default()
        };
        let id = (self.place.s3)
            .create_multipart_opts(&self.path, options)
            .await
            .map_err(self.place.failed("write", &self.path))?;
        let note = Transaction::new()
            .when(Compare::Exists(upload_key(self.upload)))
            .put(object_key(self.upload), id.clone());
        if !settle(&*self.place.store, note).await?.is_committed() {
            return Err(BlobError::LeaseEnded);
        }
        Ok(Multipart {
            id,
            parts: Vec::new(),
        })
    }
}

#[async_trait]
impl PlaceWriter for ObjectWriter {
    async fn chunk(&mut self, _hash: ContentId, bytes: Bytes) -> Result<(), BlobError> {
        let packed = object_format::pack_chunk(&bytes);
        let length =
            u32::try_from(packed.len()).expect("a packed chunk is about as long as a chunk");
        self.packed_lengths.push(length);
        self.buffer.extend_from_slice(&packed);
        self.send_parts().await
    }

    async fn finish(
        mut self: Box<Self>,
        _id: ContentId,
        manifest: &Manifest,
    ) -> Result<(), BlobError> {
        let end = object_format::encode_end(manifest, &self.packed_lengths);
        self.buffer.extend_from_slice(&end);
        if self.multipart.is_none() && self.buffer.len() <= PART {
            let payload = PutPayload::from(self.buffer.split().freeze());
            let options = PutOptions {
                attributes: attributes(),
                ..PutOptions::default()
            };
            let put = self.place.s3.put_opts(&self.path, payload, options).await;
            put.map_err(self.place.failed("write", &self.path))?;
            return Ok(());
        }
        self.send_parts().await?;
        if !self.buffer.is_empty() {
            let rest = self.buffer.split().freeze();
            self.send_part(rest).await?;
        }
        let Some(multipart) = self.multipart else {
            return Ok(());
        };
        (self.place.s3)
            .complete_multipart(&self.path, &multipart.id, multipart.parts)
            .await
            .map_err(self.place.failed("write", &self.path))?;
        Ok(())
    }
}

/// The part of an object that was read last.
struct Window {
    start: u64,
    bytes: Bytes,
    /// The chunk that follows the last one that was asked for.
    next: usize,
    /// The number of chunks to read with the next request. It grows while chunks are asked for in
    /// order, so that a large content needs few requests and a small range few bytes.
    chunks: usize,
}

impl Window {
    fn get(&self, from: u64, to: u64) -> Option<Bytes> {
        let from = usize::try_from(from.checked_sub(self.start)?).ok()?;
        let to = usize::try_from(to.checked_sub(self.start)?).ok()?;
        (to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}

struct ObjectReader {
    place: ObjectPlace,
    path: Path,
    id: ContentId,
    index: ObjectIndex,
    window: Mutex<Window>,
}

impl ObjectReader {
    /// Returns the packed bytes if they are known, or the number of chunks to read.
    fn known(&self, index: usize) -> Result<Bytes, usize> {
        let (from, to) = (self.index.positions[index], self.index.positions[index + 1]);
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let is_next = index > 0 && window.next == index;
        window.next = index + 1;
        if let Some(bytes) = window.get(from, to) {
            return Ok(bytes);
        }
        window.chunks = if is_next {
            (window.chunks * 2).min(CHUNKS_AT_ONCE)
        } else {
            1
        };
        Err(window.chunks)
    }
}

#[async_trait]
impl PlaceReader for ObjectReader {
    fn manifest(&self) -> &Manifest {
        &self.index.manifest
    }

    async fn chunk(&self, index: usize) -> Result<Bytes, BlobError> {
        let packed = match self.known(index) {
            Ok(packed) => packed,
            Err(chunks) => {
                let last = (index + chunks).min(self.index.manifest.chunks.len());
                let (from, to) = (self.index.positions[index], self.index.positions[last]);
                let range = GetRange::Bounded(from..to);
                let (bytes, _) = self.place.read(self.id, &self.path, range).await?;
                let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
                (window.start, window.bytes) = (from, bytes);
                let packed = window.get(from, self.index.positions[index + 1]);
                packed.ok_or_else(|| {
                    let name = self.place.name(&self.path);
                    BlobError::damaged(self.id, format!("{name} is truncated"))
                })?
            }
        };
        let length = self.index.manifest.chunk_length(index);
        Ok(object_format::unpack_chunk(packed, length))
    }
}

const _: () = assert!(LAST_MEMBER < TAIL as usize);
