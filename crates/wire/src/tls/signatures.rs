//! The signatures in a handshake, which every verifier of certificates checks in the same way.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;

use super::provider;

/// The result of checking the signature in a handshake.
pub(super) type SignatureResult = Result<HandshakeSignatureValid, rustls::Error>;

/// Checks signatures with the algorithms of the provider.
#[derive(Debug)]
pub(super) struct SignatureChecks(pub(super) Arc<CryptoProvider>);

impl Default for SignatureChecks {
    fn default() -> Self {
        Self(provider())
    }
}

/// Implements the part of a rustls verifier that checks signatures, with the field `signatures`.
macro_rules! check_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> $crate::tls::signatures::SignatureResult {
            let algorithms = &self.signatures.0.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> $crate::tls::signatures::SignatureResult {
            let algorithms = &self.signatures.0.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            let algorithms = &self.signatures.0.signature_verification_algorithms;
            algorithms.supported_schemes()
        }
    };
}

pub(super) use check_signatures;
