//! Turns an address into an encrypted connection that speaks one protocol.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::ConnectError;
use super::{ClientOptions, ServerAddress, TlsCause, TlsRefusal};
use crate::keep_alive::watch_for_dead_peer;

/// Connects with TCP and TLS. Offers only `protocol`, and the server must select it.
pub(super) async fn dial(
    server: &ServerAddress,
    options: &ClientOptions,
    protocol: &'static [u8],
) -> Result<ObservedStream<TlsStream<TcpStream>>, ConnectError> {
    let tcp = connect(server).await?;
    if let Some(span) = options.keep_alive {
        watch_for_dead_peer(&tcp, span, span).map_err(ConnectError::Tcp)?;
    }
    let tls = TlsConnector::from(options.tls.config())
        .with_alpn(vec![protocol.to_vec()])
        .connect(server.tls_name(), tcp)
        .await
        .map_err(|error| match as_tls(&error) {
            Some(source) => ConnectError::Tls {
                refusal: TlsRefusal::of(&source),
                source: TlsCause(source),
            },
            None => ConnectError::Tcp(error),
        })?;
    if tls.get_ref().1.alpn_protocol() != Some(protocol) {
        return Err(ConnectError::Tls {
            refusal: TlsRefusal::NotAServer,
            source: TlsCause(rustls::Error::NoApplicationProtocol),
        });
    }
    Ok(ObservedStream {
        inner: tls,
        error: TlsFailure::default(),
    })
}

/// Connects to the first reachable address of the name. Returns the last failure if there is
/// none.
async fn connect(server: &ServerAddress) -> Result<TcpStream, ConnectError> {
    let addresses = tokio::net::lookup_host((server.host(), server.port()))
        .await
        .map_err(ConnectError::Lookup)?;
    let mut last = io::Error::new(
        io::ErrorKind::NotFound,
        "the name does not resolve to an address",
    );
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

/// The TLS error that ended a connection, if any.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsFailure(Arc<OnceLock<rustls::Error>>);

impl TlsFailure {
    pub(super) fn get(&self) -> Option<rustls::Error> {
        self.0.get().cloned()
    }
}

/// Keeps the TLS error that ended the connection, because HTTP/2 keeps only its text.
pub(super) struct ObservedStream<S> {
    inner: S,
    error: TlsFailure,
}

impl<S> ObservedStream<S> {
    pub(super) fn failure(&self) -> TlsFailure {
        self.error.clone()
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && let Some(tls) = as_tls(error)
        {
            let _ = self.error.0.set(tls);
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ObservedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        Poll::Ready(self.note(result))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ObservedStream<S> {
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
