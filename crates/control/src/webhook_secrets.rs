//! Secrets of webhooks. Every environment has one, and callers of its hooks prove
//! that they know it.
//!
//! Absent here: the effect of a call (`environments`, `reactors`).

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

/// The secret that signs webhooks.
#[derive(Clone, Serialize, Deserialize)]
pub struct Secret {
    pub secret: String,
}

/// Creates a secret of 128 bits from the system's random source, as text that headers can hold.
pub fn new_secret() -> String {
    let (one, two) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    format!("{}{}", one.simple(), two.simple())
}

/// Returns whether the header's signature (`sha256=…`) matches the body, in a
/// time that reveals nothing about where it differs.
pub fn is_signed(secret: &str, body: &[u8], header: Option<&str>) -> bool {
    let Some(signature) = header.and_then(|header| header.strip_prefix("sha256=")) else {
        return false;
    };
    let Ok(signature) = hex::decode(signature) else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, body, &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example from GitHub's documentation.
    const SECRET: &str = "It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const SIGNATURE: &str =
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    #[test]
    fn only_the_right_signature_passes() {
        assert!(is_signed(SECRET, BODY, Some(SIGNATURE)));
        assert!(!is_signed(SECRET, b"Hello, World?", Some(SIGNATURE)));
        assert!(!is_signed("other", BODY, Some(SIGNATURE)));
        for header in [
            None,
            Some(""),
            Some("sha256="),
            Some("sha1=00"),
            Some("sha256=zz"),
        ] {
            assert!(!is_signed(SECRET, BODY, header), "{header:?}");
        }
        assert!(!is_signed(SECRET, BODY, Some(&SIGNATURE[..40])));
    }
}
