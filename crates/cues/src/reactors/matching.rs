//! Matching of events against rules. Pure.

use bunraku_wire::api::reactors::{Reactor, ReactorEvent, ReactorEventKind};
use serde_json::Value;

/// The fields of each kind of event; those of hooks continue with `.`.
pub(crate) fn fields_of(kind: ReactorEventKind) -> &'static [&'static str] {
    match kind {
        ReactorEventKind::Resource => &["node", "type", "title", "status", "message", "corrective"],
        ReactorEventKind::Run => &["node", "ending", "changed", "failed", "method"],
        ReactorEventKind::NodeLost => &["node", "reason"],
        ReactorEventKind::FactChanged => &["node", "fact", "before", "after"],
        ReactorEventKind::Webhook => &["hook", "body"],
        ReactorEventKind::Alert => &["hook", "alert", "repeated"],
        ReactorEventKind::NodeJoined => &["node"],
        ReactorEventKind::RunFinished => &[
            "run", "outcome", "by", "reason", "nodes", "failed", "changed",
        ],
        ReactorEventKind::ReleaseMade => &[
            "release", "kind", "by", "reason", "nodes", "changed", "code_id",
        ],
    }
}

/// Returns the reason why a rule does not match an event; `None` if it matches.
pub(crate) fn mismatch(reactor: &Reactor, happening: &ReactorEvent) -> Option<String> {
    if reactor.event != happening.event {
        return Some(format!("its event is `{}`", reactor.event.as_str()));
    }
    let is_repeated = happening.fields.get("repeated") == Some(&Value::Bool(true));
    if is_repeated && !reactor.matches.contains_key("repeated") {
        return Some("the alert is not new: it was sent again".to_owned());
    }
    reactor.matches.iter().find_map(|(path, allowed)| {
        let Some(found) = look_up(happening, path) else {
            return Some(format!("the event has no `{path}`"));
        };
        if allowed.iter().any(|wanted| value_matches(wanted, &found)) {
            return None;
        }
        let wanted: Vec<String> = allowed.iter().map(quoted_value).collect();
        Some(format!(
            "`{path}` is {}, not {}",
            quoted_value(&found),
            wanted.join(" or ")
        ))
    })
}

/// Replaces every `${field}` in a text; `None` if a field is missing.
pub(crate) fn fill(template: &str, happening: &ReactorEvent) -> Option<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let (path, after) = after.split_once('}')?;
        text.push_str(before);
        text.push_str(&plain(&look_up(happening, path.trim())?));
        rest = after;
    }
    text.push_str(rest);
    Some(text)
}

fn look_up(happening: &ReactorEvent, path: &str) -> Option<Value> {
    if path == "node" {
        let node = happening.node.as_ref()?;
        return Some(Value::String(node.to_string()));
    }
    let mut parts = path.split('.');
    let mut value = happening.fields.get(parts.next()?)?;
    for part in parts {
        value = match value {
            Value::Object(members) => members.get(part)?,
            Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value.clone())
}

fn value_matches(wanted: &Value, found: &Value) -> bool {
    match wanted {
        Value::String(pattern) => is_like(pattern, &plain(found)),
        other => other == found,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn quoted_value(value: &Value) -> String {
    let text: String = plain(value).chars().take(80).collect();
    format!("`{text}`")
}

/// Matches a pattern: `*` stands for any text, `?` for one character. Takes time
/// linear in the product of the lengths at worst, whatever the pattern.
fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut place) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while place < text.len() {
        match pattern.get(at) {
            Some('*') => {
                last_star = Some((at, place));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == text[place] => {
                at += 1;
                place += 1;
            }
            _ => match last_star {
                // The last star matches one more character.
                Some((star, taken)) => {
                    last_star = Some((star, taken + 1));
                    at = star + 1;
                    place = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        for (pattern, text, expected) in [
            ("nginx", "nginx", true),
            ("nginx", "nginx2", false),
            ("web-*", "web-1.example.com", true),
            ("*.example.com", "web-1.example.com", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xxaxxbxx", false),
            ("web-?", "web-1", true),
            ("web-?", "web-", false),
            ("", "", true),
            ("**", "", true),
            ("", "x", false),
        ] {
            assert_eq!(is_like(pattern, text), expected, "{pattern} {text}");
        }
        let (stars, long) = ("*a".repeat(50), "a".repeat(20_000) + "b");
        assert!(!is_like(&stars, &long), "and it ends in time");
    }

    #[test]
    fn fields_are_filled_in_or_nothing_is() {
        let happening: ReactorEvent = serde_json::from_value(serde_json::json!({
            "event": "alert", "hook": "prometheus",
            "alert": {"status": "firing", "labels": {"node": "web-1"}}
        }))
        .expect("an event");
        let check = |template: &str, expected: Option<&str>| {
            assert_eq!(
                fill(template, &happening).as_deref(),
                expected,
                "{template}"
            );
        };
        check("${alert.labels.node}", Some("web-1"));
        check("a ${ hook } b", Some("a prometheus b"));
        check("${alert.labels.other}", None);
        check("${node}", None);
        check("${open", None);
        check("nothing", Some("nothing"));
    }
}
