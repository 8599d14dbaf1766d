//! Secrets of webhooks. Every environment has one, and callers of its hooks prove
//! that they know it.
//!
//! Absent here: the effect of a call (`environments`, `reactors`).

use aws_lc_rs::constant_time::verify_slices_are_equal;
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

/// Returns whether the header is the secret itself, as GitLab sends it, in a time
/// that reveals nothing about where it differs.
pub fn is_token(secret: &str, header: Option<&str>) -> bool {
    header.is_some_and(|token| verify_slices_are_equal(token.as_bytes(), secret.as_bytes()).is_ok())
}

/// The parts of a delivery that prove that its sender knows the secret.
#[derive(Clone, Copy, Default, Debug)]
pub struct DeliveryProof<'a> {
    /// `X-Hub-Signature-256`, from GitHub, Gitea and others.
    pub signature: Option<&'a str>,
    /// `X-Gitlab-Token`.
    pub token: Option<&'a str>,
}

impl DeliveryProof<'_> {
    /// Returns whether one of the headers proves it.
    pub fn verifies(&self, secret: &str, body: &[u8]) -> bool {
        is_signed(secret, body, self.signature) || is_token(secret, self.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_passes() {
        assert!(is_token(SECRET, Some(SECRET)));
        for header in [
            None,
            Some(""),
            Some("It's"),
            Some("it's a Secret to Everybody"),
        ] {
            assert!(!is_token(SECRET, header), "{header:?}");
        }
        let token = DeliveryProof {
            token: Some(SECRET),
            ..DeliveryProof::default()
        };
        assert!(token.verifies(SECRET, BODY));
        assert!(!token.verifies("other", BODY));
        assert!(!DeliveryProof::default().verifies(SECRET, BODY));
    }

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
