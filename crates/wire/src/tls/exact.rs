//! TLS between two machines that know each other's certificate: each side accepts exactly the
//! certificates with the given fingerprints, regardless of the signer.
//!
//! A server and its signer use it. Neither can rely on the CA there, because the signer *is*
//! the CA.

use std::sync::Arc;

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, ClientConfig, DistinguishedName, ServerConfig};

use super::signatures::{SignatureChecks, check_signatures};
use super::{Identity, TlsError, provider};
use crate::fingerprint::Fingerprint;

/// Only the newest version: both sides are ours.
const VERSION: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Creates the configuration of a client that accepts one server.
pub fn client_config_exact(
    identity: &Identity,
    server: Fingerprint,
) -> Result<ClientConfig, TlsError> {
    let verifier = ExactVerifier::new(vec![server]);
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSION)
        .map_err(TlsError::Protocol)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(TlsError::Identity)?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Creates the configuration of a server that accepts these clients and nobody else.
pub fn server_config_exact(
    identity: &Identity,
    clients: Vec<Fingerprint>,
) -> Result<ServerConfig, TlsError> {
    let verifier = ExactVerifier::new(clients);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSION)
        .map_err(TlsError::Protocol)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(TlsError::Identity)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[derive(Debug)]
struct ExactVerifier {
    accepted: Vec<Fingerprint>,
    signatures: SignatureChecks,
}

impl ExactVerifier {
    fn new(accepted: Vec<Fingerprint>) -> Self {
        Self {
            accepted,
            signatures: SignatureChecks::default(),
        }
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        if self.accepted.contains(&Fingerprint::of(certificate)) {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }
}

impl ServerCertVerifier for ExactVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    check_signatures!();
}

impl ClientCertVerifier for ExactVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    check_signatures!();
}
