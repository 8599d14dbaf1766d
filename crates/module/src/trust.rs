//! Trusted and revoked keys.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::{Fingerprint, KeyError, PublicKey};

/// The keys that a machine trusts. Empty by default: then nothing is accepted.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    keys: BTreeMap<Fingerprint, PublicKey>,
    revoked: BTreeSet<Fingerprint>,
}

/// Errors from reading keys or a revocation list. Nothing is accepted after one.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error(
        "line {line} of the list of revoked keys is not a fingerprint of 64 hexadecimal digits"
    )]
    Revoked { line: usize },
    #[error("cannot use the key")]
    Key(#[from] KeyError),
}

impl Trust {
    /// Trusts the key in the text of a key file.
    pub fn add(&mut self, text: &str) -> Result<Fingerprint, TrustError> {
        let key = PublicKey::parse(text)?;
        let fingerprint = key.fingerprint();
        self.keys.insert(fingerprint, key);
        Ok(fingerprint)
    }

    /// Adds a list of revoked keys, with one fingerprint per line. The text after a fingerprint and
    /// lines that begin with `#` are comments.
    pub fn revoke(&mut self, list: &str) -> Result<(), TrustError> {
        for (index, line) in list.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let word = line.split_whitespace().next().unwrap_or_default();
            let wrong = |_| TrustError::Revoked { line: index + 1 };
            self.revoked.insert(word.parse().map_err(wrong)?);
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn keys(&self) -> impl Iterator<Item = (&Fingerprint, &PublicKey)> {
        self.keys.iter()
    }

    pub fn is_revoked(&self, key: &Fingerprint) -> bool {
        self.revoked.contains(key)
    }

    pub(crate) fn key(&self, fingerprint: &Fingerprint) -> Option<&PublicKey> {
        self.keys.get(fingerprint)
    }
}
