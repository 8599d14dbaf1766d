//! The serial number of a certificate.
//!
//! Stored as big-endian bytes without leading zeros. The text form is lower-case hexadecimal
//! of whole bytes, so that a serial has one key in a store.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand::SecureRandom;

/// Maximum length in octets (RFC 5280).
const LONGEST: usize = 20;

/// A certificate's serial number; never zero.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(Box<[u8]>);

/// The error for bytes or text that cannot be a serial number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a certificate serial number (1 to 20 bytes, hexadecimal, not zero)")]
pub struct InvalidSerial;

impl Serial {
    /// Reads big-endian bytes. Ignores leading zeros.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidSerial> {
        let start = bytes.iter().position(|byte| *byte != 0);
        let bytes = &bytes[start.ok_or(InvalidSerial)?..];
        if bytes.len() > LONGEST {
            return Err(InvalidSerial);
        }
        Ok(Self(bytes.into()))
    }

    /// Creates a serial of 128 bits from the generator, which nobody can guess or repeat.
    pub fn random(generator: &dyn SecureRandom) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut bytes = [0; 16];
        generator.fill(&mut bytes)?;
        // A first byte between 64 and 127 keeps the length fixed and the
        // number positive without a padding byte.
        bytes[0] = (bytes[0] & 0x7f) | 0x40;
        Ok(Self(bytes.as_slice().into()))
    }

    /// Creates a serial of 128 bits from the operating system's randomness.
    pub fn fresh() -> Result<Self, aws_lc_rs::error::Unspecified> {
        Self::random(&aws_lc_rs::rand::SystemRandom::new())
    }

    /// Returns the bytes, big-endian, without leading zeros.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<u64> for Serial {
    /// Converts a number. Zero, which no certificate has, becomes one.
    fn from(number: u64) -> Self {
        Self::from_bytes(&number.max(1).to_be_bytes()).expect("a number above zero has bytes")
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Serial({self})")
    }
}

impl FromStr for Serial {
    type Err = InvalidSerial;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if digits.len() > 4 * LONGEST {
            return Err(InvalidSerial);
        }
        let even = match digits.len() % 2 {
            0 => digits.to_owned(),
            _ => format!("0{digits}"),
        };
        Self::from_bytes(&hex::decode(even).map_err(|_| InvalidSerial)?)
    }
}

crate::text_form::serde_as_text!(Serial);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn puppet_and_openssl_spellings_name_the_same_serial() {
        for text in ["0x000a", "A", "0a", "00000A"] {
            assert_eq!(text.parse(), Ok(Serial::from(10)), "{text}");
        }
        assert_eq!(Serial::from(10).to_string(), "0a");
        assert!("0".parse::<Serial>().is_err());
        assert!("".parse::<Serial>().is_err());
        assert!("1".repeat(41).parse::<Serial>().is_err());
    }

    #[test]
    fn fresh_serials_are_long_and_differ() {
        let (one, two) = (Serial::fresh().unwrap(), Serial::fresh().unwrap());
        assert_eq!(one.as_bytes().len(), 16);
        assert_ne!(one, two);
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_writing_reads_back(text in "\\PC{0,90}", bytes: Vec<u8>) {
            let _ = text.parse::<Serial>();
            if let Ok(serial) = Serial::from_bytes(&bytes) {
                prop_assert_eq!(serial.to_string().parse(), Ok(serial));
            }
        }
    }
}
