//! First contact: a newcomer knows only a fingerprint.
//!
//! The pinned certificate being *among* those that the server sends is not enough:
//! certificates are public, so anyone can send them. The server's own certificate must lead
//! up to it, and the server must hold the key.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig};

use super::client::finish;
use super::signatures::{SignatureChecks, check_signatures};
use super::{TlsError, VERSIONS, provider, roots_of};
use crate::certificate;
use crate::fingerprint::Fingerprint;

/// The authority that a server proved to belong to. The first successful handshake fills it.
#[derive(Clone, Debug, Default)]
pub struct PinnedAuthority {
    pem: Arc<OnceLock<String>>,
}

impl PinnedAuthority {
    /// Returns the pinned certificate and those between it and the server's, in PEM. `None`
    /// before the first handshake.
    pub fn pem(&self) -> Option<&str> {
        self.pem.get().map(String::as_str)
    }
}

/// Creates a configuration that accepts only servers below the certificate with this
/// fingerprint, and the place that will hold that certificate.
pub fn client_config_pinned(
    fingerprint: Fingerprint,
) -> Result<(ClientConfig, PinnedAuthority), TlsError> {
    let authority = PinnedAuthority::default();
    let verifier = PinVerifier {
        fingerprint,
        signatures: SignatureChecks::default(),
        authority: authority.clone(),
    };
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .map_err(TlsError::Protocol)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok((finish(config), authority))
}

#[derive(Debug)]
struct PinVerifier {
    fingerprint: Fingerprint,
    signatures: SignatureChecks,
    authority: PinnedAuthority,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = intermediates
            .iter()
            .find(|der| Fingerprint::of(der) == self.fingerprint)
            .ok_or(CertificateError::UnknownIssuer)?
            .clone()
            .into_owned();
        let roots =
            roots_of(std::slice::from_ref(&pinned)).map_err(|_| CertificateError::BadEncoding)?;
        let verified = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&self.signatures.0),
        )
        .build()
        .map_err(|_| CertificateError::BadEncoding)?
        .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        let _ = self.authority.pem.set(bundle(&pinned, intermediates));
        Ok(verified)
    }

    check_signatures!();
}

/// Returns the authorities that the pinned certificate signed, directly or through each
/// other, and then the pinned certificate.
fn bundle(pinned: &CertificateDer<'_>, sent: &[CertificateDer<'_>]) -> String {
    let mut trusted: Vec<&[u8]> = vec![pinned];
    while let Some(next) = sent
        .iter()
        .map(AsRef::as_ref)
        .find(|der: &&[u8]| !trusted.contains(der) && trusted.iter().any(|by| signed(der, by)))
    {
        trusted.push(next);
    }
    trusted
        .iter()
        .rev()
        .map(|der| certificate::to_pem("CERTIFICATE", der))
        .collect()
}

fn signed(der: &[u8], by: &[u8]) -> bool {
    let (Ok(one), Ok(above)) = (certificate::parse(der), certificate::parse(by)) else {
        return false;
    };
    one.is_ca()
        && one.issuer().as_raw() == above.subject().as_raw()
        && one.verify_signature(Some(above.public_key())).is_ok()
}
