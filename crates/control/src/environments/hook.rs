//! Signed webhooks: who may say that there is new code.

use aws_lc_rs::hmac;
use bunraku_wire::api::HookReply;
use serde::Deserialize;

/// What a delivery asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    Deploy,
    /// Nothing to do, and why.
    Ignored(String),
}

/// Whether the header's signature (`sha256=…`) is the body's, in a time that
/// tells nothing about where it differs.
pub(crate) fn is_signed(secret: &str, body: &[u8], header: Option<&str>) -> bool {
    let Some(signature) = header.and_then(|header| header.strip_prefix("sha256=")) else {
        return false;
    };
    let Ok(signature) = hex::decode(signature) else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, body, &signature).is_ok()
}

/// Reads a delivery. A body without `ref` is a plain "there is new code".
pub(crate) fn read(event: Option<&str>, body: &[u8], branch: Option<&str>) -> Delivery {
    #[derive(Deserialize)]
    struct Push {
        #[serde(rename = "ref")]
        reference: Option<String>,
    }
    if event.is_some_and(|event| event != "push") {
        let event = event.unwrap_or_default();
        return Delivery::Ignored(format!("nothing is done on `{event}`"));
    }
    let pushed = serde_json::from_slice::<Push>(body).ok();
    let reference = pushed.and_then(|push| push.reference);
    match (reference, branch) {
        (Some(reference), Some(branch)) if reference != format!("refs/heads/{branch}") => {
            Delivery::Ignored(format!("`{reference}` is not the branch `{branch}`"))
        }
        _ => Delivery::Deploy,
    }
}

pub(crate) fn reply(deploy: Option<u64>, message: impl Into<String>) -> HookReply {
    HookReply {
        deploy,
        message: message.into(),
    }
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

    #[test]
    fn pushes_to_other_branches_and_other_events_ask_for_nothing() {
        let push = br#"{"ref": "refs/heads/main"}"#;
        assert_eq!(read(Some("push"), push, Some("main")), Delivery::Deploy);
        assert_eq!(read(None, b"", Some("main")), Delivery::Deploy);
        assert_eq!(read(Some("push"), push, None), Delivery::Deploy);
        assert!(matches!(
            read(Some("ping"), b"{}", None),
            Delivery::Ignored(_)
        ));
        assert!(matches!(
            read(None, push, Some("dev")),
            Delivery::Ignored(_)
        ));
    }
}
