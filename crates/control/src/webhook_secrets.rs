//! Secrets of webhooks: every environment has one, and whoever calls its
//! hooks proves to know it.
//!
//! Absent here: what a call asks for (`environments`, `reactors`).

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

/// What webhooks are signed with.
#[derive(Clone, Serialize, Deserialize)]
pub struct Secret {
    pub secret: String,
}

/// 128 bits from the system's own source, in words that headers can hold.
pub fn new_secret() -> String {
    let (one, two) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    format!("{}{}", one.simple(), two.simple())
}

/// Whether the header's signature (`sha256=…`) is the body's, in a time that
/// tells nothing about where it differs.
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

    /// The example of GitHub's own documentation.
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
