//! The difference between two fact sets, fact by fact. Pure.

use bunraku_model::FactSet;
use bunraku_wire::api::FactChange;
use serde_json::{Map, Value};

/// Returns every fact that only one set has, or that differs between them, by path.
///
/// Compares objects member by member, since they group facts. A list is one
/// value, because positions in it would shift.
pub(super) fn difference(before: &FactSet, after: &FactSet) -> Vec<FactChange> {
    let mut changes = Vec::new();
    compare(
        &mut Vec::new(),
        before.as_map(),
        after.as_map(),
        &mut changes,
    );
    changes
}

fn compare(
    path: &mut Vec<String>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    changes: &mut Vec<FactChange>,
) {
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        path.push(name.clone());
        match (before.get(name), after.get(name)) {
            (Some(Value::Object(before)), Some(Value::Object(after))) => {
                compare(path, before, after, changes);
            }
            (before, after) if before != after => changes.push(FactChange {
                path: path
                    .iter()
                    .map(|step| written(step))
                    .collect::<Vec<_>>()
                    .join("."),
                before: before.cloned(),
                after: after.cloned(),
            }),
            _ => {}
        }
        path.pop();
    }
}

/// Formats a path step as queries expect it: quoted if it contains a dot or a space.
fn written(step: &str) -> String {
    let plain = |character: char| character.is_alphanumeric() || "_-:".contains(character);
    if !step.is_empty() && step.chars().all(plain) {
        step.to_owned()
    } else {
        Value::from(step).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changes(before: Value, after: Value) -> Vec<(String, Option<Value>, Option<Value>)> {
        let facts = |value: Value| FactSet::try_from(value).expect("an object");
        difference(&facts(before), &facts(after))
            .into_iter()
            .map(|change| (change.path, change.before, change.after))
            .collect()
    }

    #[test]
    fn equal_facts_differ_in_nothing() {
        let facts = json!({"os": {"family": "Debian"}, "list": [1, 2]});
        assert_eq!(changes(facts.clone(), facts), []);
    }

    #[test]
    fn added_removed_and_replaced_facts_are_listed_by_path() {
        assert_eq!(
            changes(
                json!({"os": {"name": "Debian", "release": {"major": "12"}}, "gone": null}),
                json!({"os": {"name": "Debian", "release": {"major": "13"}}, "role": "db"}),
            ),
            [
                ("gone".to_owned(), Some(Value::Null), None),
                (
                    "os.release.major".to_owned(),
                    Some(json!("12")),
                    Some(json!("13"))
                ),
                ("role".to_owned(), None, Some(json!("db"))),
            ]
        );
    }

    #[test]
    fn a_list_is_one_value_and_odd_names_are_quoted() {
        assert_eq!(
            changes(
                json!({"mountpoints": {"/var log": [1]}}),
                json!({"mountpoints": {"/var log": [1, 2]}}),
            ),
            [(
                "mountpoints.\"/var log\"".to_owned(),
                Some(json!([1])),
                Some(json!([1, 2]))
            )]
        );
    }

    #[test]
    fn an_object_that_becomes_a_value_is_one_change() {
        assert_eq!(
            changes(json!({"a": {"b": 1}}), json!({"a": 1})),
            [("a".to_owned(), Some(json!({"b": 1})), Some(json!(1)))]
        );
    }
}
