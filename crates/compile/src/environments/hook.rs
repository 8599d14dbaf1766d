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

/// The event of a push, as GitHub and Gitea name it, and as GitLab does.
const PUSHES: [&str; 2] = ["push", "Push Hook"];

/// Returns the reason if an event is not a push.
pub fn push_is_ignored(event: Option<&str>) -> Option<String> {
    let other = event.filter(|event| !PUSHES.contains(event))?;
    Some(format!("the event `{other}` is ignored"))
}

/// Reads a delivery. A body without `ref` only announces that there is new code.
pub(crate) fn read(event: Option<&str>, body: &[u8], branch: Option<&str>) -> Delivery {
    #[derive(Deserialize)]
    struct Push {
        #[serde(rename = "ref")]
        reference: Option<String>,
        after: Option<String>,
    }
    if let Some(why) = push_is_ignored(event) {
        return Delivery::Ignored(why);
    }
    let Ok(push) = serde_json::from_slice::<Push>(body) else {
        return Delivery::Deploy;
    };
    let is_deleted = |after: &str| !after.is_empty() && after.bytes().all(|digit| digit == b'0');
    match (push.reference, branch) {
        (Some(reference), Some(branch)) if reference != format!("refs/heads/{branch}") => {
            Delivery::Ignored(format!("`{reference}` is not the branch `{branch}`"))
        }
        (Some(reference), _) if push.after.as_deref().is_some_and(is_deleted) => {
            Delivery::Ignored(format!("`{reference}` was deleted; its code stays in use"))
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

    #[test]
    fn a_push_of_gitlab_is_one_and_a_deleted_branch_changes_nothing() {
        let push = br#"{"ref": "refs/heads/main", "after": "1f00"}"#;
        assert_eq!(
            read(Some("Push Hook"), push, Some("main")),
            Delivery::Deploy
        );
        let tag = br#"{"ref": "refs/tags/v1", "after": "1f00"}"#;
        assert!(matches!(
            read(Some("Tag Push Hook"), tag, None),
            Delivery::Ignored(_)
        ));
        let deleted = br#"{"ref": "refs/heads/main", "after": "0000000000"}"#;
        assert!(matches!(
            read(Some("push"), deleted, Some("main")),
            Delivery::Ignored(_)
        ));
    }
}
