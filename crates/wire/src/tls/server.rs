//! The server's side: shows its certificate, asks for the peer's.
//!
//! A peer without a certificate gets its connection: the API decides for
//! each route who may use it (joining needs none). A peer *with* a
//! certificate that is not valid gets nothing.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

use super::{HTTP_1, HTTP_2, Identity, TlsError, VERSIONS, provider, revocation_lists, roots};
use crate::certificate;

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
}
