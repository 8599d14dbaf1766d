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
        $crate::tls::signatures::check_signatures!(verify_tls12_signature);
        $crate::tls::signatures::check_signatures!(verify_tls13_signature);

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            let algorithms = &self.signatures.0.signature_verification_algorithms;
            algorithms.supported_schemes()
        }
    };
    ($check:ident) => {
        fn $check(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> $crate::tls::signatures::SignatureResult {
            let algorithms = &self.signatures.0.signature_verification_algorithms;
            rustls::crypto::$check(message, certificate, signed, algorithms)
        }
    };
}

pub(super) use check_signatures;
