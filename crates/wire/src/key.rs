//! Private keys: generated, written and read, never printed.

use std::fmt;
use std::path::Path;

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use rustls::pki_types::PrivateKeyDer;

/// The kind of key to generate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyKind {
    /// ECDSA on P-256: generated in microseconds, supported everywhere.
    #[default]
    EcdsaP256,
    /// RSA with 2048 bits, for peers that support nothing else.
    Rsa2048,
    /// RSA with 4096 bits, as Puppet uses. Generating it takes seconds, so do not do it on an
    /// async thread.
    Rsa4096,
}

/// A private key in memory.
pub struct PrivateKey {
    pub(crate) pair: KeyPair,
}

/// The reason why a key could not be generated, read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot create a key")]
    Make(#[source] rcgen::Error),
    #[error("cannot read the key {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write the key {path}")]
    Write {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the key is encrypted; decrypt it first, for example with `openssl pkey`")]
    Encrypted,
    #[error("it contains no private key (PEM `PRIVATE KEY`)")]
    Missing,
    #[error("cannot use the private key")]
    Damaged(#[source] rcgen::Error),
}

impl PrivateKey {
    /// Generates a new key from the operating system's randomness.
    pub fn generate(kind: KeyKind) -> Result<Self, KeyError> {
        let pair = match kind {
            KeyKind::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            KeyKind::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
        };
        Ok(Self {
            pair: pair.map_err(KeyError::Make)?,
        })
    }

    /// Reads a key from PEM: PKCS#8, or the older RSA and EC forms.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        if text.contains("ENCRYPTED") {
            return Err(KeyError::Encrypted);
        }
        let blocks = pem::parse_many(text).map_err(|_| KeyError::Missing)?;
        let block = blocks
            .iter()
            .find(|block| block.tag().ends_with("PRIVATE KEY"))
            .ok_or(KeyError::Missing)?;
        let pair = KeyPair::try_from(block.contents()).map_err(KeyError::Damaged)?;
        Ok(Self { pair })
    }

    /// Reads a key from a PEM file.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let text = bunraku_files::read_text(path).map_err(|source| KeyError::Read {
            path: path.display().to_string(),
            source,
        })?;
        Self::from_pem(&text)
    }

    /// Reads the key in this file, or creates one if the file does not exist. If two callers
    /// do so at once, both get the key of the first.
    pub fn load_or_create(path: &Path, kind: KeyKind) -> Result<Self, KeyError> {
        if path.exists() {
            return Self::load(path);
        }
        let key = Self::generate(kind)?;
        let failed = |source| KeyError::Write {
            path: path.display().to_string(),
            source,
        };
        if let Some(parent) = path.parent() {
            bunraku_files::create_private_directory(parent).map_err(failed)?;
        }
        match bunraku_files::create(path, key.to_pem().as_bytes(), 0o600) {
            Ok(()) => Ok(key),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Self::load(path),
            Err(error) => Err(failed(error)),
        }
    }

    /// Replaces the file with this key atomically, with mode 0600.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        bunraku_files::replace(path, self.to_pem().as_bytes(), 0o600).map_err(|source| {
            KeyError::Write {
                path: path.display().to_string(),
                source,
            }
        })
    }

    /// Returns the key in PEM, for a file that only its owner can read.
    pub fn to_pem(&self) -> String {
        pem::encode_config(
            &pem::Pem::new(
                pem_tag(self.pair.serialized_der()),
                self.pair.serialize_der(),
            ),
            pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
        )
    }

    /// Signs a message. [`Certificate::verifies`](crate::Certificate::verifies) checks it.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        rcgen::SigningKey::sign(&self.pair, message).map_err(KeyError::Damaged)
    }

    /// Returns a certificate that this key signs for itself, in PEM.
    pub(crate) fn self_signed(&self, name: &str) -> Result<String, KeyError> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let made = params.self_signed(&self.pair).map_err(KeyError::Make)?;
        Ok(crate::certificate::to_pem("CERTIFICATE", made.der()))
    }

    /// Returns the key in the form that TLS uses.
    pub(crate) fn to_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.pair.serialize_der())
            .expect("a parsed key is PKCS#8, PKCS#1 or SEC1")
    }

    pub(crate) fn public_key_info(&self) -> Vec<u8> {
        rcgen::PublicKeyData::subject_public_key_info(&self.pair)
    }
}

/// Returns the PEM label. The DER keeps the form in which it was read, and the label must
/// match that form.
fn pem_tag(der: &[u8]) -> &'static str {
    match PrivateKeyDer::try_from(der) {
        Ok(PrivateKeyDer::Pkcs1(_)) => "RSA PRIVATE KEY",
        Ok(PrivateKeyDer::Sec1(_)) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}
