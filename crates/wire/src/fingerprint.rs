//! The fingerprint of a certificate, which people compare and pin.
//!
//! There is one canonical text: `SHA256:` and 64 lower-case hexadecimal digits of the
//! certificate's DER. Parsing is tolerant (case, and colons between bytes, as OpenSSL and
//! Puppet print them); output is always canonical.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use sha2::{Digest, Sha256};

/// Maximum length of text to parse: the prefix and 32 bytes with colons.
const LONGEST: usize = 128;

/// The SHA-256 of a certificate's DER.
#[derive(Clone, Copy)]
pub struct Fingerprint([u8; 32]);

/// The error for text that is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a certificate fingerprint (`SHA256:` and 64 hexadecimal digits)")]
pub struct InvalidFingerprint;

impl Fingerprint {
    /// Returns the fingerprint of a certificate in DER.
    pub fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// Returns the raw digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Compares in constant time, so that a pin cannot be guessed byte by byte.
impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for Fingerprint {}

impl std::hash::Hash for Fingerprint {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(InvalidFingerprint);
        }
        let digits = match text.get(..7) {
            Some(prefix) if prefix.eq_ignore_ascii_case("sha256:") => &text[7..],
            _ => text,
        }
        .trim_start();
        let digits = if digits.contains(':') {
            without_colons(digits)?
        } else {
            digits.to_owned()
        };
        let mut digest = [0; 32];
        hex::decode_to_slice(&digits, &mut digest).map_err(|_| InvalidFingerprint)?;
        Ok(Self(digest))
    }
}

/// Removes colons. Accepts them only between whole bytes: `ab:cd`, never `a:bcd`.
fn without_colons(digits: &str) -> Result<String, InvalidFingerprint> {
    let mut joined = String::with_capacity(64);
    for pair in digits.split(':') {
        if pair.len() != 2 {
            return Err(InvalidFingerprint);
        }
        joined.push_str(pair);
    }
    Ok(joined)
}

crate::text_form::serde_as_text!(Fingerprint);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_common_spelling_reads_as_the_same_fingerprint() {
        let canonical = Fingerprint::of(b"certificate");
        let digits = hex::encode(canonical.as_bytes());
        let colons = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap())
            .collect::<Vec<_>>()
            .join(":")
            .to_uppercase();
        for text in [
            format!("SHA256:{digits}"),
            format!("sha256:{digits}"),
            format!(" SHA256: {colons}\n"),
            digits.to_uppercase(),
            colons,
        ] {
            assert_eq!(text.parse::<Fingerprint>(), Ok(canonical), "{text}");
        }
        assert_eq!(canonical.to_string(), format!("SHA256:{digits}"));
    }

    #[test]
    fn anything_else_is_refused() {
        let digits = hex::encode([7; 32]);
        for text in [
            "",
            "SHA256:",
            &digits[1..],
            &format!("{digits}00"),
            &format!("SHA512:{digits}"),
            &format!("{}:{}", &digits[..1], &digits[1..]),
            &digits.replace('7', "g"),
        ] {
            assert_eq!(
                text.parse::<Fingerprint>(),
                Err(InvalidFingerprint),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_writing_reads_back(text in "\\PC{0,140}", digest: [u8; 32]) {
            let _ = text.parse::<Fingerprint>();
            let fingerprint = Fingerprint(digest);
            prop_assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        }
    }
}
