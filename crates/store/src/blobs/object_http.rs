//! HTTP for the object store, with hyper and rustls like everything else here.
//!
//! `object_store` would bring its own HTTP client, which reads proxy settings from the environment
//! and trusts the system's CAs. This one trusts exactly the configured CAs, presents no client
//! certificate, and gives up on a server that is silent.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::Uri;
use http_body_util::BodyExt;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioIo};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The time to establish a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The number of requests that wait for an answer at the same time.
const AT_ONCE: usize = 64;

/// The problem with the object store, if its last answer was one. Clones share it.
#[derive(Clone, Default, Debug)]
pub(super) struct ObjectHealth(Arc<Mutex<Option<String>>>);

impl ObjectHealth {
    pub(super) fn set(&self, problem: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    pub(super) fn problem(&self) -> Option<String> {
        let problem = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        problem.clone()
    }
}

/// An HTTP client for one object store. Clones share connections.
#[derive(Clone)]
pub(super) struct ObjectHttp {
    pub(super) health: ObjectHealth,
    client: Client<Dialer, HttpRequestBody>,
    timeout: Duration,
    permits: Arc<Semaphore>,
}

impl std::fmt::Debug for ObjectHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectHttp").finish_non_exhaustive()
    }
}

impl ObjectHttp {
    pub(super) fn new(ca_pem: &str, timeout: Duration) -> Result<Self, Source> {
        let tls = crate::tls::client_config(ca_pem, None, b"http/1.1")?;
        let dialer = Dialer {
            tls: TlsConnector::from(Arc::new(tls)),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(dialer);
        Ok(Self {
            health: ObjectHealth::default(),
            client,
            timeout,
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        })
    }
}

impl HttpConnector for ObjectHttp {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for ObjectHttp {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let _permit = self.permits.acquire().await;
        let answer = tokio::time::timeout(self.timeout, self.client.request(request)).await;
        let answer = answer.map_err(|_| silence(self.timeout))?;
        let (parts, body) = answer.map_err(failure)?.into_parts();
        if parts.status.is_success() {
            self.health.set(None);
        }
        let body = GuardedBody {
            body,
            limit: self.timeout,
            patience: Box::pin(tokio::time::sleep(self.timeout)),
        };
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

fn silence(limit: Duration) -> HttpError {
    let why = format!("no answer within {} s", limit.as_secs());
    HttpError::new_boxed(HttpErrorKind::Timeout, why.into())
}

fn failure(error: ClientError) -> HttpError {
    let kind = if error.is_connect() {
        HttpErrorKind::Connect
    } else {
        // All our requests may be repeated: a name is written by one writer, with the same bytes.
        HttpErrorKind::Request
    };
    HttpError::new(kind, error)
}

/// An answer that is an error once it has paused for too long.
struct GuardedBody {
    body: hyper::body::Incoming,
    limit: Duration,
    patience: Pin<Box<tokio::time::Sleep>>,
}

impl hyper::body::Body for GuardedBody {
    type Data = bytes::Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        let frame = std::pin::pin!(this.body.frame()).as_mut().poll(context);
        if let Poll::Ready(frame) = frame {
            let next = tokio::time::Instant::now() + this.limit;
            this.patience.as_mut().reset(next);
            let failed = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            return Poll::Ready(frame.map(|frame| frame.map_err(failed)));
        }
        match this.patience.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(silence(this.limit)))),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Opens connections.
#[derive(Clone)]
struct Dialer {
    tls: TlsConnector,
}

impl tower::Service<Uri> for Dialer {
    type Response = TokioIo<ObjectStream>;
    type Error = Source;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Source>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Source>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let tls = self.tls.clone();
        Box::pin(async move {
            match tokio::time::timeout(CONNECT, dial(&tls, &address)).await {
                Ok(dialed) => Ok(TokioIo::new(dialed?)),
                Err(_) => Err(format!("no connection within {} s", CONNECT.as_secs()).into()),
            }
        })
    }
}

async fn dial(tls: &TlsConnector, address: &Uri) -> Result<ObjectStream, Source> {
    let host = address.host().ok_or("the endpoint has no host")?;
    let host = host.trim_matches(['[', ']']);
    let is_tls = address.scheme_str() == Some("https");
    let port = address.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    if !is_tls {
        return Ok(ObjectStream(Either::Left(stream)));
    }
    let name = ServerName::try_from(host.to_owned())?;
    let stream = tls.connect(name, stream).await?;
    Ok(ObjectStream(Either::Right(Box::new(stream))))
}

/// A connection to an object store.
struct ObjectStream(Either<TcpStream, Box<TlsStream<TcpStream>>>);

impl Connection for ObjectStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for ObjectStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for ObjectStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
