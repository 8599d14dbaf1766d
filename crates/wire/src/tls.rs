//! TLS: both sides prove their identity.
//!
//! Rules: use only aws-lc-rs. Use TLS 1.3, and 1.2 for Puppet agents that support nothing
//! newer. Neither side resumes sessions, because a resumed session skips the revocation list,
//! and because a session cache costs memory for each of fifty thousand idle connections. A
//! full handshake with ECDSA costs less than a millisecond.

mod client;
mod exact;
mod identity;
mod peer;
mod pin;
mod server;
mod signatures;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::{RootCertStore, SupportedProtocolVersion};

pub use client::{ClientTls, ReloadableClientTls};
pub use exact::{client_config_exact, server_config_exact};
pub use identity::{Identity, IdentityError};
pub use peer::{PeerError, PeerIdentity};
pub use pin::{PinnedAuthority, client_config_pinned};
pub use server::{ReloadableServerTls, ServerTls};

use crate::certificate::{self, CertificateError};
use crate::revocation::{RevocationError, RevocationList};

/// The reason why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot use the trusted CA certificate")]
    Authority(#[source] CertificateError),
    #[error("the trusted certificate is not usable as a CA")]
    Root(#[source] rustls::Error),
    #[error("cannot use the revocation list")]
    RevocationList(#[source] RevocationError),
    #[error("cannot verify peers with these certificates and revocation lists")]
    Verifier(#[source] rustls::client::VerifierBuilderError),
    #[error("cannot use this certificate and key")]
    Identity(#[source] rustls::Error),
    #[error("cannot set up TLS")]
    Protocol(#[source] rustls::Error),
}

/// Newest first.
pub(crate) const VERSIONS: &[&SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];

pub(crate) const HTTP_2: &[u8] = b"h2";
pub(crate) const HTTP_1: &[u8] = b"http/1.1";

pub(crate) fn provider() -> Arc<CryptoProvider> {
    use std::sync::OnceLock;
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())))
}

/// Returns the trust anchors. Every certificate of the bundle is one, because Puppet agents
/// send only their own certificate, even if an intermediate authority signed it.
pub(crate) fn roots(pem: &str) -> Result<Arc<RootCertStore>, TlsError> {
    let chain = certificate::chain_from_pem(pem).map_err(TlsError::Authority)?;
    roots_of(&chain).map(Arc::new)
}

/// Returns the trust anchors for peers of a server: the authorities of the bundle that sign, and
/// not the ones above them. An authority above may have other authorities below it, whose
/// certificates would then count as ours, under any name.
pub(crate) fn signers(pem: &str) -> Result<Arc<RootCertStore>, TlsError> {
    let chain = certificate::chain_from_pem(pem).map_err(TlsError::Authority)?;
    let mut signing = Vec::new();
    for der in &chain {
        let mut others = chain.iter().filter(|other| *other != der);
        let mut is_above = false;
        while let (false, Some(other)) = (is_above, others.next()) {
            let issued = |below, above| certificate::names_as_issuer(below, above);
            is_above = issued(other, der).map_err(TlsError::Authority)?
                && !issued(der, other).map_err(TlsError::Authority)?;
        }
        if !is_above {
            signing.push(der.clone());
        }
    }
    roots_of(&signing).map(Arc::new)
}

fn roots_of(chain: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for der in chain {
        roots.add(der.clone()).map_err(TlsError::Root)?;
    }
    Ok(roots)
}

/// Reads revocation lists. An empty text means that there is no list.
pub(crate) fn revocation_lists(
    pem: &str,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    if pem.trim().is_empty() {
        return Ok(Vec::new());
    }
    Ok(RevocationList::from_pem(pem)
        .map_err(TlsError::RevocationList)?
        .into_iter()
        .map(|list| CertificateRevocationListDer::from(list.der))
        .collect())
}
