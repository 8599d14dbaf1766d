//! Signed webhooks, which announce new code.

use bunraku_wire::api::HookReply;
use serde::Deserialize;

/// The request of a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    Deploy,
    /// Nothing to do, with the reason.
    Ignored(String),
}

/// Reads a delivery. A body without `ref` only announces that there is new code.
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
