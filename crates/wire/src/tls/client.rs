//! The client side of TLS: trusts only its authority.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ClientConfig;
use rustls::client::{Resumption, WebPkiServerVerifier};

use super::{HTTP_2, Identity, TlsError, VERSIONS, provider, revocation_lists, roots};

/// The parts of a client's TLS configuration.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The only authorities that are trusted, in PEM.
    pub authority_pem: String,
    /// Revocation lists in PEM; empty when there is none.
    pub revocation_lists_pem: String,
    /// The client's identity. Without one, only the join endpoint answers.
    pub identity: Option<Identity>,
}

impl ClientTls {
    /// Returns the configuration for rustls.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let mut verifier =
            WebPkiServerVerifier::builder_with_provider(roots(&self.authority_pem)?, provider());
        let lists = revocation_lists(&self.revocation_lists_pem)?;
        if !lists.is_empty() {
            verifier = verifier.with_crls(lists).allow_unknown_revocation_status();
        }
        let verifier = verifier.build().map_err(TlsError::Verifier)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(TlsError::Protocol)?
            .with_webpki_verifier(verifier);
        let config = match &self.identity {
            Some(identity) => builder
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .map_err(TlsError::Identity)?,
            None => builder.with_no_client_auth(),
        };
        Ok(finish(config))
    }
}

/// Applies the settings that all client configurations share.
pub(super) fn finish(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![HTTP_2.to_vec()];
    config.resumption = Resumption::disabled();
    config
}

/// A client's TLS whose certificate and authorities can be replaced. The next connection uses
/// the new ones.
#[derive(Clone, Debug)]
pub struct ReloadableClientTls {
    config: Arc<RwLock<Arc<ClientConfig>>>,
}

impl ReloadableClientTls {
    /// Creates it with this initial TLS.
    pub fn new(tls: &ClientTls) -> Result<Self, TlsError> {
        Ok(Self::from_config(tls.config()?))
    }

    /// Creates it with an existing configuration (a pinned one).
    pub fn from_config(config: ClientConfig) -> Self {
        Self {
            config: Arc::new(RwLock::new(Arc::new(config))),
        }
    }

    /// Makes new connections use this TLS. On an error, nothing changes.
    pub fn reload(&self, tls: &ClientTls) -> Result<(), TlsError> {
        let fresh = Arc::new(tls.config()?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Returns the configuration for the next connection.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}
