//! One HTTP/2 connection to one server.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::ConnectError;
use super::{Body, BoxError, ClientError, ClientOptions, Refusal, ServerAddress, ServerFailure};
use crate::tls::HTTP_2;

#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) server: ServerAddress,
    pub(super) generation: u64,
    sender: http2::SendRequest<Body>,
    tls_error: Arc<OnceLock<rustls::Error>>,
}

/// A request that got no reply.
pub(super) struct SendFailure {
    /// The request, if it surely never left.
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
        let opened = tokio::time::timeout(
            options.connect_timeout,
            Self::open_now(server, options, generation),
        );
        let failed = |cause| ServerFailure {
            server: server.clone(),
            cause,
        };
        match opened.await {
            Ok(result) => result.map_err(failed),
            Err(_) => Err(failed(ConnectError::TimedOut(options.connect_timeout))),
        }
    }

    async fn open_now(
        server: &ServerAddress,
        options: &ClientOptions,
        generation: u64,
    ) -> Result<Self, ConnectError> {
        let tcp = connect(server).await?;
        let tls = TlsConnector::from(options.tls.config())
            .connect(server.tls_name(), tcp)
            .await
            .map_err(|error| match as_tls(&error) {
                Some(source) => ConnectError::Tls {
                    refusal: Refusal::of(&source),
                    source,
                },
                None => ConnectError::Tcp(error),
            })?;
        if tls.get_ref().1.alpn_protocol() != Some(HTTP_2) {
            return Err(ConnectError::Tls {
                refusal: Refusal::NotAServer,
                source: rustls::Error::NoApplicationProtocol,
            });
        }
        let tls_error = Arc::new(OnceLock::new());
        let watched = Watched {
            inner: tls,
            tls_error: Arc::clone(&tls_error),
        };
        let (sender, driver) = builder(options)
            .handshake(TokioIo::new(watched))
            .await
            .map_err(ConnectError::Http)?;
        // Ends by itself when the last sender is gone.
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "connection ended");
            }
        });
        Ok(Self {
            server: server.clone(),
            generation,
            sender,
            tls_error,
        })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(super) async fn send(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendFailure> {
        let mut sender = self.sender.clone();
        sender.try_send_request(request).await.map_err(|mut error| {
            let unsent = error.take_message();
            SendFailure {
                unsent,
                tls: self.tls_error.get().cloned(),
                source: error.into_error().into(),
            }
        })
    }
}

impl SendFailure {
    /// With TLS 1.3 the server looks at our certificate when we already
    /// think that all is well: its refusal arrives with the first request.
    pub(super) fn into_error(self, server: ServerAddress) -> ClientError {
        match self.tls {
            Some(source) => ClientError::Refused {
                server,
                refusal: Refusal::of(&source),
                source,
            },
            None => ClientError::Lost {
                server,
                source: self.source,
            },
        }
    }
}

fn builder(options: &ClientOptions) -> http2::Builder<TokioExecutor> {
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

/// Every address of the name is tried; the last failure is told.
async fn connect(server: &ServerAddress) -> Result<TcpStream, ConnectError> {
    let addresses = tokio::net::lookup_host((server.host(), server.port()))
        .await
        .map_err(ConnectError::Lookup)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Small requests must not wait for an acknowledgement.
                stream.set_nodelay(true).map_err(ConnectError::Tcp)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(ConnectError::Tcp(last))
}

fn as_tls(error: &io::Error) -> Option<rustls::Error> {
    error.get_ref()?.downcast_ref::<rustls::Error>().cloned()
}

/// Remembers the TLS error that ended the connection: HTTP/2 keeps only the
/// text of it.
struct Watched<S> {
    inner: S,
    tls_error: Arc<OnceLock<rustls::Error>>,
}

impl<S> Watched<S> {
    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && let Some(tls) = as_tls(error)
        {
            let _ = self.tls_error.set(tls);
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        Poll::Ready(self.note(result))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write(context, bytes));
        Poll::Ready(self.note(result))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_flush(context));
        Poll::Ready(self.note(result))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_shutdown(context));
        Poll::Ready(self.note(result))
    }
}
