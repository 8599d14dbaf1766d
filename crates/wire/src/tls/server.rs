//! The server side of TLS: presents its certificate and requests the peer's.
//!
//! A peer without a certificate can connect, because the API decides for each route who may
//! use it (joining needs no certificate). A peer *with* an invalid certificate is refused.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{HTTP_1, HTTP_2, Identity, TlsError, VERSIONS, provider, revocation_lists, signers};
use crate::certificate;

/// Time that a refused peer has to read the reason.
const LINGER: Duration = Duration::from_secs(2);
/// Maximum number of bytes from a refused peer that are read and discarded.
const LINGER_BYTES: u64 = 64 << 10;

/// The parts of a server's TLS configuration.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The server's certificate and key.
    pub identity: Identity,
    /// Authorities whose certificates are accepted from peers, in PEM. They are also sent to
    /// peers, so that a newcomer can compare its pin.
    pub authority_pem: String,
    /// Revocation lists in PEM; empty when there is none.
    pub revocation_lists_pem: String,
}

impl ServerTls {
    /// Returns the configuration for rustls.
    pub fn config(&self) -> Result<ServerConfig, TlsError> {
        let mut verifier =
            WebPkiClientVerifier::builder_with_provider(signers(&self.authority_pem)?, provider())
                .allow_unauthenticated();
        let lists = revocation_lists(&self.revocation_lists_pem)?;
        if !lists.is_empty() {
            verifier = verifier.with_crls(lists).allow_unknown_revocation_status();
        }
        let verifier = verifier.build().map_err(TlsError::Verifier)?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(TlsError::Protocol)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain()?, self.identity.key.clone_key())
            .map_err(TlsError::Identity)?;
        config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(config)
    }

    fn chain(&self) -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, TlsError> {
        let mut chain = self.identity.chain.clone();
        let above =
            certificate::chain_from_pem(&self.authority_pem).map_err(TlsError::Authority)?;
        for der in above {
            if !chain.contains(&der) {
                chain.push(der);
            }
        }
        Ok(chain)
    }
}

/// A server's TLS whose certificate, authorities and lists can be replaced while it listens.
/// Open connections keep what they started with.
#[derive(Clone, Debug)]
pub struct ReloadableServerTls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl ReloadableServerTls {
    /// Creates it with this initial TLS.
    pub fn new(tls: &ServerTls) -> Result<Self, TlsError> {
        Ok(Self {
            config: Arc::new(RwLock::new(Arc::new(tls.config()?))),
        })
    }

    /// Makes new connections use this TLS. On an error, nothing changes.
    pub fn reload(&self, tls: &ServerTls) -> Result<(), TlsError> {
        let fresh = Arc::new(tls.config()?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Returns the acceptor for the next connection. Cheap, so call it for each one.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(
            &self.config.read().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// Performs the handshake of one connection.
    ///
    /// A refused peer can read the reason. Closing immediately would reset the connection
    /// while the peer's first request is in flight, and the reset would overtake the refusal.
    pub async fn accept<IO>(&self, stream: IO, timeout: Duration) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        // Boxed, so that the memory of the handshake is freed after it and does not stay in
        // the caller's task for the lifetime of the connection.
        Box::pin(shake_hands(self.acceptor(), stream, timeout)).await
    }
}

async fn shake_hands<IO: AsyncRead + AsyncWrite + Unpin>(
    acceptor: TlsAcceptor,
    stream: IO,
    timeout: Duration,
) -> io::Result<TlsStream<IO>> {
    let handshake = acceptor.accept(stream).into_fallible();
    match tokio::time::timeout(timeout, handshake).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err((error, stream))) => {
            let _ = tokio::time::timeout(LINGER, drain(stream)).await;
            Err(error)
        }
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the TLS handshake took too long",
        )),
    }
}

async fn drain<IO: AsyncRead + AsyncWrite + Unpin>(mut stream: IO) -> io::Result<()> {
    stream.shutdown().await?;
    let mut rest = stream.take(LINGER_BYTES);
    let mut piece = [0; 1024];
    while rest.read(&mut piece).await? > 0 {}
    Ok(())
}
