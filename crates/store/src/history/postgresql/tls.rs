//! TLS to PostgreSQL, with the crypto provider that everything else here uses.
//!
//! Absent: channel binding, which proves nothing beyond the verified certificate.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;

use super::options::PostgresqlTls;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Makes the TLS side of new connections.
#[derive(Clone)]
pub(super) struct PostgresqlConnector(Arc<ClientConfig>);

impl PostgresqlConnector {
    pub(super) fn new(tls: &PostgresqlTls) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(tls.ca_pem.as_bytes()) {
            roots.add(certificate?)?;
        }
        if roots.is_empty() {
            return Err("the file of authorities has no certificate".into());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
                let chain = chain.collect::<Result<Vec<_>, _>>()?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
                builder.with_client_auth_cert(chain, key)?
            }
        };
        Ok(Self(Arc::new(config)))
    }
}

impl<S> MakeTlsConnect<S> for PostgresqlConnector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type TlsConnect = NamedConnector;
    type Error = Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<NamedConnector, Error> {
        Ok(NamedConnector {
            name: ServerName::try_from(domain.to_owned())?,
            connector: TlsConnector::from(Arc::clone(&self.0)),
        })
    }
}

/// Connects to one server, and expects its name in the certificate.
pub(super) struct NamedConnector {
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl<S> TlsConnect<S> for NamedConnector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connected = self.connector.connect(self.name, stream).await;
            connected.map(|stream| EncryptedStream(Box::new(stream)))
        })
    }
}

/// An encrypted connection.
pub(super) struct EncryptedStream<S>(Box<RustlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
