//! Connections to one server: the shared one, and one for each stream.
//!
//! Requests share an HTTP/2 connection. A stream has its own HTTP/1.1 connection, because
//! that costs the server a third less memory while the stream is silent.

use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::dial::{TlsFailure, dial};
use super::error::ConnectError;
use super::idle::{UseCounter, UseGuard};
use super::{
    Body, BoxError, ClientError, ClientOptions, ServerAddress, ServerFailure, TlsCause, TlsRefusal,
};
use crate::tls::{HTTP_1, HTTP_2};

/// The connection that requests share.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: ServerAddress,
    pub(super) generation: u64,
    pub(super) uses: UseCounter,
    sender: http2::SendRequest<Body>,
    tls: TlsFailure,
}

/// The connection that one request uses.
pub(super) struct Channel {
    pub(super) server: ServerAddress,
    /// The generation of the shared connection.
    pub(super) generation: Option<u64>,
    /// Keeps the shared connection open.
    pub(super) in_use: Option<UseGuard>,
    sender: Sender,
    tls: TlsFailure,
}

enum Sender {
    Shared(http2::SendRequest<Body>),
    Own(http1::SendRequest<Body>),
}

/// The failure of a request that got no reply.
pub(super) struct SendFailure {
    /// The request, if it certainly was not sent.
    pub(super) unsent: Option<Request<Body>>,
    tls: Option<rustls::Error>,
    source: BoxError,
}

impl Connection {
    pub(super) async fn open(
        server: &ServerAddress,
        options: &ClientOptions,
        generation: u64,
    ) -> Result<Self, ServerFailure> {
        let opening = async {
            let stream = dial(server, options, HTTP_2).await?;
            let tls = stream.failure();
            let (sender, driver) = http2_settings(options)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(ConnectError::Http)?;
            // Ends when the last sender is dropped.
            spawn(driver);
            Ok(Self {
                server: server.clone(),
                generation,
                uses: UseCounter::default(),
                sender,
                tls,
            })
        };
        in_time(server, options, opening).await
    }

    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Returns a channel for one request. The connection counts as used until the channel is
    /// dropped.
    pub(super) fn channel(&self) -> Channel {
        Channel {
            server: self.server.clone(),
            generation: Some(self.generation),
            in_use: Some(self.uses.begin()),
            sender: Sender::Shared(self.sender.clone()),
            tls: self.tls.clone(),
        }
    }
}

impl Channel {
    /// Opens a separate connection for a stream.
    pub(super) async fn open(
        server: &ServerAddress,
        options: &ClientOptions,
    ) -> Result<Self, ServerFailure> {
        let opening = async {
            let stream = dial(server, options, HTTP_1).await?;
            let tls = stream.failure();
            let (sender, driver) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(ConnectError::Http)?;
            // Ends when the reply's body is dropped.
            spawn(driver);
            Ok(Self {
                server: server.clone(),
                generation: None,
                in_use: None,
                sender: Sender::Own(sender),
                tls,
            })
        };
        in_time(server, options, opening).await
    }

    pub(super) fn is_open(&self) -> bool {
        match &self.sender {
            Sender::Shared(sender) => !sender.is_closed(),
            Sender::Own(sender) => !sender.is_closed(),
        }
    }

    pub(super) async fn send(
        &mut self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, SendFailure> {
        let sent = match &mut self.sender {
            Sender::Shared(sender) => sender.try_send_request(request).await,
            Sender::Own(sender) => {
                put_host_in_head(&mut request);
                sender.try_send_request(request).await
            }
        };
        sent.map_err(|mut error| SendFailure {
            unsent: error.take_message(),
            tls: self.tls.get(),
            source: error.into_error().into(),
        })
    }
}

impl SendFailure {
    /// Converts the failure to an error. With TLS 1.3, the server checks our certificate
    /// after our side of the handshake has succeeded, so its refusal arrives with the first
    /// request.
    pub(super) fn into_error(self, server: ServerAddress) -> ClientError {
        match self.tls {
            Some(source) => ClientError::Refused {
                server,
                refusal: TlsRefusal::of(&source),
                source: TlsCause(source),
            },
            None => ClientError::Lost {
                server,
                source: self.source,
            },
        }
    }
}

async fn in_time<T>(
    server: &ServerAddress,
    options: &ClientOptions,
    opening: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ServerFailure> {
    let limit = options.connect_timeout;
    let opened = match tokio::time::timeout(limit, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(ConnectError::TimedOut(limit)),
    };
    opened.map_err(|cause| ServerFailure {
        server: server.clone(),
        cause,
    })
}

fn spawn(driver: impl Future<Output = hyper::Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "connection ended");
        }
    });
}

fn http2_settings(options: &ClientOptions) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    if let Some(interval) = options.keep_alive {
        builder
            .keep_alive_interval(interval)
            .keep_alive_timeout(interval)
            .keep_alive_while_idle(true);
    }
    builder
}

/// Adjusts the head for HTTP/1.1, which has the path in its first line and the server in a
/// header.
fn put_host_in_head(request: &mut Request<Body>) {
    let uri = std::mem::take(request.uri_mut()).into_parts();
    if let Some(host) = uri
        .authority
        .and_then(|host| HeaderValue::from_str(host.as_str()).ok())
    {
        request.headers_mut().insert(HOST, host);
    }
    if let Some(path) = uri.path_and_query {
        *request.uri_mut() = Uri::from(path);
    }
}
