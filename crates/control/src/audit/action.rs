//! One action, before it has an outcome: what, on what, why.
//!
//! Everything in it is bounded and free of secrets: long texts are cut, and passwords in URLs are
//! removed.

use std::collections::BTreeMap;

use bunraku_wire::api::{AuditEntry, AuditOutcome, AuditSource};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::origin::AuditOrigin;

/// The longest text, in characters.
const LONGEST_TEXT: usize = 300;
/// The most members of a list or object.
const MOST_MEMBERS: usize = 20;
/// The deepest value.
const DEEPEST: usize = 3;
/// The most details.
const MOST_DETAILS: usize = 16;

/// What somebody is about to do.
#[derive(Clone, Debug)]
pub struct AuditAction {
    action: String,
    object: Option<String>,
    details: BTreeMap<String, Value>,
    reason: Option<String>,
    /// Replaces the origin's own.
    by: Option<(String, AuditSource)>,
}

impl AuditAction {
    /// An action, named like those of endpoints: `create-release`.
    pub fn new(action: impl Into<String>) -> Self {
        Self {
            action: action.into(),
            object: None,
            details: BTreeMap::new(),
            reason: None,
            by: None,
        }
    }

    /// On an object of this kind: `on("environment", "production")`.
    #[must_use]
    pub fn on(mut self, kind: &str, name: impl std::fmt::Display) -> Self {
        self.object = Some(clipped(&format!("{kind}/{name}")));
        self
    }

    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        add_detail(&mut self.details, name, value.into());
        self
    }

    /// For this reason. Without one, the reason of the request applies.
    #[must_use]
    pub fn because(mut self, reason: Option<&str>) -> Self {
        self.reason = reason
            .filter(|reason| !reason.is_empty())
            .map(clipped)
            .or(self.reason);
        self
    }

    /// By a part of Bunraku that acts on its own, such as a reactor.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>, source: AuditSource) -> Self {
        self.by = Some((who.into(), source));
        self
    }

    pub(super) fn into_entry(
        self,
        origin: AuditOrigin,
        now: Timestamp,
        server: &str,
    ) -> AuditEntry {
        let (who, source) = self.by.unwrap_or((origin.who, origin.source));
        AuditEntry {
            id: Uuid::now_v7(),
            at: now,
            who: clipped(&who),
            role: origin.role,
            certificate: origin.certificate,
            address: origin.address,
            source,
            client: origin.client.map(|client| clipped(&client)),
            action: self.action,
            object: self.object,
            details: self.details,
            reason: self.reason.or(origin.reason).map(|text| clipped(&text)),
            outcome: AuditOutcome::Unknown,
            status: None,
            message: None,
            count: 1,
            request_id: origin.request_id,
            server: server.to_owned(),
            checkpoint: None,
        }
    }
}

pub(super) fn add_detail(details: &mut BTreeMap<String, Value>, name: &str, value: Value) {
    let is_empty = match &value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    if !is_empty && details.len() < MOST_DETAILS {
        details.insert(name.to_owned(), bounded(value, DEEPEST));
    }
}

/// Returns a value of limited size, without passwords in its URLs.
fn bounded(value: Value, depth: usize) -> Value {
    match value {
        Value::String(text) => Value::String(clipped(&text)),
        Value::Array(_) | Value::Object(_) if depth == 0 => Value::String("…".to_owned()),
        Value::Array(items) => {
            let left_out = items.len().saturating_sub(MOST_MEMBERS);
            let kept = items.into_iter().take(MOST_MEMBERS);
            let mut kept: Vec<Value> = kept.map(|item| bounded(item, depth - 1)).collect();
            if left_out > 0 {
                kept.push(Value::String(format!("and {left_out} more")));
            }
            Value::Array(kept)
        }
        Value::Object(members) => {
            let kept = members.into_iter().take(MOST_MEMBERS);
            let kept = kept.map(|(name, value)| (clipped(&name), bounded(value, depth - 1)));
            Value::Object(kept.collect())
        }
        other => other,
    }
}

/// Returns a text of limited length without control characters and passwords.
pub(super) fn clipped(text: &str) -> String {
    let text = without_password(text);
    let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut clipped: String = text.chars().take(LONGEST_TEXT).map(printable).collect();
    if text.chars().nth(LONGEST_TEXT).is_some() {
        clipped.push('…');
    }
    clipped
}

/// Removes the user and the password from every URL in a text.
fn without_password(text: &str) -> String {
    let mut clean = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        clean.push_str(before);
        clean.push_str("://");
        let end = after
            .find(|letter: char| matches!(letter, '/' | '?' | '#') || letter.is_whitespace())
            .unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(at) => &after[at + 1..],
            None => after,
        };
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn passwords_in_urls_are_left_out() {
        for (text, clean) in [
            (
                "https://bob:secret@git.example/x.git",
                "https://git.example/x.git",
            ),
            (
                "cannot fetch https://t0ken@host and http://a:b@c",
                "cannot fetch https://host and http://c",
            ),
            ("https://host/path@2x.png", "https://host/path@2x.png"),
            ("git@github.com:org/repo", "git@github.com:org/repo"),
            ("://", "://"),
        ] {
            assert_eq!(clipped(text), clean);
        }
    }

    #[test]
    fn details_are_bounded_however_large_the_request() {
        let nodes: Vec<String> = (0..10_000).map(|number| format!("node-{number}")).collect();
        let deep = json!({"a": {"b": {"c": {"d": "e"}}}, "text": "x".repeat(100_000)});
        let action = AuditAction::new("send-commands")
            .detail("nodes", nodes)
            .detail("deep", deep)
            .detail("none", Value::Null);
        let details = action.details;
        assert_eq!(details["nodes"][20], "and 9980 more");
        assert_eq!(details["deep"]["a"]["b"]["c"], "…");
        assert!(!details.contains_key("none"));
        assert!(serde_json::to_string(&details).expect("JSON").len() < 2_000);
    }

    #[test]
    fn a_caller_cannot_forge_a_line_with_control_characters() {
        assert_eq!(clipped("a\nb\u{1b}[31mc"), "a b [31mc");
    }
}
