//! The labels that reach the runs of a rule: those of the alert, and those that the rule adds.
//!
//! They come from outside, so they are bounded here. Callers treat them as data: as
//! environment variables with a fixed prefix, and as values in states.

use std::collections::BTreeMap;

use bunraku_wire::api::reactors::{Reactor, ReactorEvent, ReactorEventKind};
use serde_json::Value;

use super::matching;

/// The most labels of one event.
const MOST_LABELS: usize = 64;
/// The longest name.
const LONGEST_NAME: usize = 100;
/// The number of characters of a value that are kept.
const VALUE_KEPT: usize = 1_000;

/// Returns the labels of an event for a rule.
pub(super) fn labels_of(rule: &Reactor, event: &ReactorEvent) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    // The rule's own labels come first, so that an alert cannot displace them.
    for (name, template) in &rule.labels {
        if let Some(value) = matching::fill(template, event) {
            labels.insert(name.clone(), kept(&value));
        }
    }
    if event.event == ReactorEventKind::Alert
        && let Some(Value::Object(given)) =
            (event.fields.get("alert")).and_then(|alert| alert.get("labels"))
    {
        for (name, value) in given {
            if let Value::String(value) = value
                && is_label_name(name)
                && labels.len() < MOST_LABELS
            {
                labels.entry(name.clone()).or_insert_with(|| kept(value));
            }
        }
    }
    labels
}

/// Returns the labels that all of these have in common.
pub(super) fn common<'a>(
    mut all: impl Iterator<Item = &'a BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut common = all.next().cloned().unwrap_or_default();
    for other in all {
        common.retain(|name, value| other.get(name) == Some(value));
    }
    common
}

/// Returns whether text is a name of a label: letters, digits and underscores, not first a digit.
pub(super) fn is_label_name(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= LONGEST_NAME
        && text.chars().all(is_word)
        && text
            .chars()
            .next()
            .is_some_and(|first| !first.is_ascii_digit())
}

/// Returns a value that fits into an environment variable.
fn kept(value: &str) -> String {
    let plain = value.chars().filter(|c| *c != '\0');
    plain.take(VALUE_KEPT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_bounded_and_those_of_the_rule_win() {
        let rule = crate::reactors::rules::parse(
            "r.yaml",
            "a: {when: {event: alert}, then: {hosts: web-1, labels: {status: '${alert.status}', team: ops}}}\n",
        );
        let rule = rule.expect("a rule").remove(0);
        let special = [
            ("team".to_owned(), json!("evil")),
            ("a-b".to_owned(), json!("not a name")),
            ("nul".to_owned(), json!("a\0b")),
            ("long".to_owned(), json!("y".repeat(5_000))),
            ("number".to_owned(), json!(5)),
        ];
        let rest = (0..200).map(|number| (format!("z{number:03}"), json!("x")));
        let many: serde_json::Map<String, Value> = special.into_iter().chain(rest).collect();
        let event: ReactorEvent = serde_json::from_value(json!({
            "event": "alert", "hook": "p", "alert": {"status": "resolved", "labels": many}
        }))
        .expect("an event");
        let labels = labels_of(&rule, &event);
        assert_eq!(labels.len(), MOST_LABELS);
        assert_eq!(labels["team"], "ops");
        assert_eq!(labels["status"], "resolved");
        assert_eq!(labels["nul"], "ab");
        assert_eq!(labels["long"].len(), VALUE_KEPT);
        assert!(!labels.contains_key("a-b") && !labels.contains_key("number"));
    }

    #[test]
    fn several_alerts_have_only_some_labels_in_common() {
        let one = BTreeMap::from([
            ("a".to_owned(), "1".to_owned()),
            ("b".to_owned(), "2".to_owned()),
        ]);
        let two = BTreeMap::from([
            ("a".to_owned(), "1".to_owned()),
            ("b".to_owned(), "3".to_owned()),
        ]);
        let both = common([&one, &two].into_iter());
        assert_eq!(both, BTreeMap::from([("a".to_owned(), "1".to_owned())]));
    }
}
