//! A certificate chain with its key, which one side presents to the other.

use std::path::Path;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate::{self, Certificate, CertificateError};
use crate::key::{KeyError, PrivateKey};

/// A certificate, the certificates above it, and the key.
pub struct Identity {
    certificate: Certificate,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// The reason why a certificate and a key do not form an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot use the certificate")]
    Certificate(#[source] CertificateError),
    #[error("cannot use the key")]
    Key(#[source] KeyError),
    #[error("the key does not belong to the certificate")]
    Mismatch,
    #[error("cannot read {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

impl Identity {
    /// Creates an identity from a certificate (the first of its PEM text; those above it may
    /// follow) and its key.
    pub fn from_pem(certificates: &str, key: &PrivateKey) -> Result<Self, IdentityError> {
        let chain =
            certificate::chain_from_pem(certificates).map_err(IdentityError::Certificate)?;
        let own = Certificate::from_der(&chain[0]).map_err(IdentityError::Certificate)?;
        let parsed = certificate::parse(&chain[0]).map_err(IdentityError::Certificate)?;
        if parsed.public_key().raw != key.public_key_info() {
            return Err(IdentityError::Mismatch);
        }
        Ok(Self {
            certificate: own,
            key: key.to_der(),
            chain,
        })
    }

    /// Reads an identity from two files.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
        let text = bunraku_files::read_text(certificate).map_err(|source| IdentityError::Read {
            path: certificate.display().to_string(),
            source,
        })?;
        let key = PrivateKey::load(key).map_err(IdentityError::Key)?;
        Self::from_pem(&text, &key)
    }

    /// Returns the certificate that names the holder.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self {
            certificate: self.certificate.clone(),
            chain: self.chain.clone(),
            key: self.key.clone_key(),
        }
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.certificate.common_name)
    }
}
