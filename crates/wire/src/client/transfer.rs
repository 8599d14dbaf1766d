//! Large bodies in both directions, piece by piece.
//!
//! A transfer may take any amount of time while it makes progress. Only silence longer than
//! the idle timeout ends it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use serde::de::DeserializeOwned;
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::io::ReaderStream;

use super::{
    BoxError, Call, CallBody, Client, ClientError, ConnectionKind, ServerAddress, UseGuard,
};

/// The size of the pieces in which a file is read.
const PIECE: usize = 64 << 10;

/// Time limit for uploads. The idle timeout is the effective limit; this one only has to
/// exist.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// A reply that arrives piece by piece.
pub struct Download {
    server: ServerAddress,
    /// The total length, if the server sent it.
    pub length: Option<u64>,
    /// The content encoding, if any.
    pub encoding: Option<String>,
    received: u64,
    body: Incoming,
    idle_timeout: Duration,
    ended: bool,
    /// Keeps the shared connection open.
    _in_use: Option<UseGuard>,
}

impl Client {
    /// Uploads the contents of a reader (`PUT`), without holding them in memory. Sent only
    /// once, because a reader cannot be read again.
    pub async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        reader: impl AsyncRead + Send + 'static,
    ) -> Result<T, ClientError> {
        self.upload_stream(
            Method::PUT,
            path,
            ReaderStream::with_capacity(reader, PIECE),
        )
        .await
    }

    /// Sends pieces as they arrive.
    pub async fn upload_stream<T: DeserializeOwned, E: Into<BoxError> + 'static>(
        &self,
        method: Method,
        path: &str,
        pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ) -> Result<T, ClientError> {
        let progress = Arc::new(UploadProgress::default());
        let watched = Arc::clone(&progress);
        let frames = pieces.map(move |piece| watched.note(piece.map_err(Into::into)));
        let mut call = Call::new(method, path);
        call.content_type = Some("application/octet-stream");
        call.body = CallBody::Stream(Some(StreamBody::new(frames).boxed_unsync()));
        let mut request = Box::pin(self.send(call, ConnectionKind::Shared, FAR));
        let idle = self.options().idle_timeout;
        let mut seen = 0;
        let reply = loop {
            match tokio::time::timeout(idle, &mut request).await {
                Ok(reply) => break reply.map_err(|error| progress.explain(error))?,
                Err(_) => {
                    let now = progress.pieces.load(Ordering::Relaxed);
                    if now == seen {
                        return Err(self.stalled().await);
                    }
                    seen = now;
                }
            }
        };
        let deadline = Instant::now() + self.options().request_timeout;
        let body = self
            .whole_body(reply.response, &reply.server, deadline)
            .await?;
        super::decode(&body, reply.server)
    }

    async fn stalled(&self) -> ClientError {
        let server = match self.server().await {
            Some(server) => server,
            None => self.options().servers[0].clone(),
        };
        ClientError::TimedOut {
            server,
            what: "the transfer stalled",
            after: self.options().idle_timeout,
        }
    }

    /// Fetches a large body.
    pub async fn download(&self, path: &str) -> Result<Download, ClientError> {
        self.download_with(path, Vec::new()).await
    }

    pub(super) async fn download_with(
        &self,
        path: &str,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<Download, ClientError> {
        let mut call = Call::new(Method::GET, path);
        call.accept = "*/*";
        call.headers = headers;
        let limit = self.options().request_timeout;
        let reply = self.send(call, ConnectionKind::Shared, limit).await?;
        let length = reply
            .response
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let encoding = (reply.response.headers().get(CONTENT_ENCODING))
            .and_then(|value| Some(value.to_str().ok()?.to_owned()));
        Ok(Download {
            server: reply.server,
            length,
            encoding,
            received: 0,
            body: reply.response.into_body(),
            idle_timeout: self.options().idle_timeout,
            ended: false,
            _in_use: reply.in_use,
        })
    }
}

/// The state of an upload's source, visible from outside the request.
#[derive(Default)]
struct UploadProgress {
    pieces: AtomicU64,
    failure: Mutex<Option<BoxError>>,
}

impl UploadProgress {
    fn note(&self, piece: Result<Bytes, BoxError>) -> Result<Frame<Bytes>, BoxError> {
        self.pieces.fetch_add(1, Ordering::Relaxed);
        piece.map(Frame::data).map_err(|error| {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            "cannot read the data to send".into()
        })
    }

    /// Returns the source's error if the source failed, instead of the reset that this
    /// caused.
    fn explain(&self, error: ClientError) -> ClientError {
        let failure = self
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        failure.map_or(error, ClientError::Upload)
    }
}

impl Download {
    /// Returns the next piece, or `None` at the end. A reply that ends early is an error,
    /// never a short file.
    pub async fn next(&mut self) -> Option<Result<Bytes, ClientError>> {
        while !self.ended {
            match tokio::time::timeout(self.idle_timeout, self.body.frame()).await {
                Err(_) => {
                    self.ended = true;
                    return Some(Err(ClientError::TimedOut {
                        server: self.server.clone(),
                        what: "the transfer stalled",
                        after: self.idle_timeout,
                    }));
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        self.received += piece.len() as u64;
                        return Some(Ok(piece));
                    }
                }
                Ok(Some(Err(error))) => {
                    self.ended = true;
                    return Some(Err(ClientError::Lost {
                        server: self.server.clone(),
                        source: error.into(),
                    }));
                }
                Ok(None) => return self.finish().map(Err),
            }
        }
        None
    }

    /// Converts the download to a `Stream`.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, ClientError>> + Send {
        futures::stream::unfold(self, |mut download| async move {
            download.next().await.map(|item| (item, download))
        })
    }

    fn finish(&mut self) -> Option<ClientError> {
        self.ended = true;
        let short = self.length.is_some_and(|length| length != self.received);
        short.then(|| ClientError::BadReply {
            server: self.server.clone(),
            why: "its length differs from the announced one",
            source: None,
        })
    }
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Download({}, {:?} bytes)", self.server, self.length)
    }
}
