//! The server's side: shows its certificate, asks for the peer's.
//!
//! A peer without a certificate gets its connection: the API decides for
//! each route who may use it (joining needs none). A peer *with* a
//! certificate that is not valid gets nothing.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{HTTP_1, HTTP_2, Identity, TlsError, VERSIONS, provider, revocation_lists, roots};
use crate::certificate;

/// How long a refused peer has to read why.
const LINGER: Duration = Duration::from_secs(2);
/// How much of what a refused peer still sends is read and thrown away.
const LINGER_BYTES: u64 = 64 << 10;

/// What a server's TLS is made of.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The server's certificate and key.
    pub identity: Identity,
    /// Authorities whose certificates are taken from peers, in PEM. They are
    /// sent along too, so that a newcomer can compare its pin.
    pub authority_pem: String,
    /// Revocation lists in PEM; empty when there is none.
    pub revocation_lists_pem: String,
}

impl ServerTls {
    /// The configuration for rustls.
    pub fn config(&self) -> Result<ServerConfig, TlsError> {
        let mut verifier =
            WebPkiClientVerifier::builder_with_provider(roots(&self.authority_pem)?, provider())
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

/// A server's TLS whose certificate, authorities and lists can be exchanged
/// while it listens. Connections that are open keep what they started with.
#[derive(Clone, Debug)]
pub struct ReloadableServerTls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl ReloadableServerTls {
    /// Starts with this.
    pub fn new(tls: &ServerTls) -> Result<Self, TlsError> {
        Ok(Self {
            config: Arc::new(RwLock::new(Arc::new(tls.config()?))),
        })
    }

    /// New connections use this from now on. On an error nothing changes.
    pub fn reload(&self, tls: &ServerTls) -> Result<(), TlsError> {
        let fresh = Arc::new(tls.config()?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// For the next connection; cheap, so ask for each one.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(
            &self.config.read().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// Takes one connection through its handshake.
    ///
    /// A peer that is refused gets to read why: closing at once would reset
    /// the connection while its first request is in flight, and the reset
    /// overtakes the refusal.
    pub async fn accept<IO>(&self, stream: IO, timeout: Duration) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        // In a box: what the handshake needs is given back after it, and does
        // not stay in the caller's task for as long as the connection lives.
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
