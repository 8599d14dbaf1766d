//! Ed25519 keys in their file formats.
//!
//! A public key is one line: `bunraku-module-key BASE64 COMMENT`. A private key is PKCS #8 in PEM,
//! as other tools write it too.

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const WORD: &str = "bunraku-module-key";
const PEM_TAG: &str = "PRIVATE KEY";

/// Errors from reading or creating a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot create a key")]
    Generate,
    #[error("this is not a private Ed25519 key in PEM")]
    Private,
    #[error("this is not a public key of the form `bunraku-module-key BASE64 COMMENT`")]
    Public,
}

/// The hash of a public key, which identifies the key to people.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Fingerprint {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| KeyError::Public)?;
        Ok(Self(bytes))
    }
}

/// A key that verifies signatures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey {
    bytes: [u8; 32],
    pub comment: String,
}

impl PublicKey {
    /// Parses the single line of a key file.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(KeyError::Public);
        };
        let mut words = line.splitn(3, ' ');
        if words.next() != Some(WORD) {
            return Err(KeyError::Public);
        }
        let bytes = words.next().and_then(|word| STANDARD.decode(word).ok());
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        Ok(Self {
            bytes: bytes.ok_or(KeyError::Public)?,
            comment: words.next().unwrap_or_default().trim().to_owned(),
        })
    }

    pub fn to_line(&self) -> String {
        let line = format!("{WORD} {} {}", STANDARD.encode(self.bytes), self.comment);
        line.trim_end().to_owned()
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(self.bytes).into())
    }

    pub(crate) fn accepts(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.bytes);
        key.verify(message, signature).is_ok()
    }
}

/// The private key of a module's author.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    pem: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

impl SigningKey {
    /// Creates a new key from the machine's source of randomness.
    pub fn generate() -> Result<Self, KeyError> {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let document = Ed25519KeyPair::generate_pkcs8(&random).map_err(|_| KeyError::Generate)?;
        let pem = pem::encode(&pem::Pem::new(PEM_TAG, document.as_ref()));
        Self::from_pem(&pem)
    }

    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let read = pem::parse(text).map_err(|_| KeyError::Private)?;
        if read.tag() != PEM_TAG {
            return Err(KeyError::Private);
        }
        let pair = Ed25519KeyPair::from_pkcs8(read.contents())
            .or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(read.contents()));
        Ok(Self {
            pair: pair.map_err(|_| KeyError::Private)?,
            pem: text.to_owned(),
        })
    }

    /// Returns the key in its file format. Anyone who has it can sign.
    pub fn to_pem(&self) -> &str {
        &self.pem
    }

    pub fn public(&self, comment: &str) -> PublicKey {
        let bytes = self.pair.public_key().as_ref().try_into();
        PublicKey {
            bytes: bytes.expect("a public Ed25519 key has 32 bytes"),
            comment: comment.to_owned(),
        }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}
