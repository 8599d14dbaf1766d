//! State functions that are evaluated while compiling: Salt's `test` states.

use serde_json::{Map, Value, json};

use super::TypedParameters;
use super::arguments::{EVERYWHERE, SALTS_OWN};
use crate::jinja::Scope;
use crate::low::Chunk;
use crate::problem::Problem;

/// The arguments of the states with a declared outcome. They share them, so that `extend` may replace
/// the function.
const OUTCOME: &[&str] = &[
    "changes",
    "result",
    "comment",
    "warnings",
    "allow_test_mode_failure",
];
/// The arguments of each `test` state. `test.nop` takes any: other states `use` its arguments.
const ARGUMENTS: [(&str, &[&str]); 7] = [
    ("test.succeed_without_changes", OUTCOME),
    ("test.succeed_with_changes", OUTCOME),
    ("test.fail_without_changes", OUTCOME),
    ("test.fail_with_changes", OUTCOME),
    ("test.configurable_test_state", OUTCOME),
    ("test.show_notification", &["text"]),
    (
        "test.check_pillar",
        &[
            "present",
            "boolean",
            "integer",
            "string",
            "listing",
            "dictionary",
            "verbose",
        ],
    ),
];

/// Refuses an argument that a `test` state does not have.
pub(super) fn check(chunk: &Chunk, full: &str) -> Result<(), Problem> {
    let known = ARGUMENTS.iter().find(|(function, _)| *function == full);
    let Some((_, own)) = known else {
        return Ok(());
    };
    let is_known =
        |name: &str| own.contains(&name) || EVERYWHERE.contains(&name) || SALTS_OWN.contains(&name);
    match chunk.arguments.keys().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let names = own.iter().chain(&EVERYWHERE).chain(&SALTS_OWN).copied();
            let message = format!("`{full}` of `{}` has no argument `{name}`", chunk.id);
            Err(Problem::new(message, chunk.spot.location()).near(name, names))
        }
    }
}

/// Translates a `test` state. Returns nothing for all other modules.
pub(super) fn translate(chunk: &Chunk, full: &str, scope: &Scope) -> Option<TypedParameters> {
    let comment = chunk.arguments.get("comment").cloned();
    let configured = |changes: bool, result: bool| {
        let mut parameters = common(chunk);
        parameters.insert("changes".to_owned(), json!(changes));
        parameters.insert("result".to_owned(), json!(result));
        let usual = if result { "Success!" } else { "Failure!" };
        let comment = comment.as_ref().map_or_else(|| usual.to_owned(), text);
        parameters.insert("comment".to_owned(), json!(comment));
        Some(TypedParameters {
            type_name: "test".to_owned(),
            parameters,
            sensitive: Vec::new(),
        })
    };
    match full {
        "test.nop" | "test.succeed_without_changes" => configured(false, true),
        "test.succeed_with_changes" => configured(true, true),
        "test.fail_without_changes" => configured(false, false),
        "test.fail_with_changes" => configured(true, false),
        "test.configurable_test_state" => {
            let flag = |name: &str| match chunk.arguments.get(name) {
                None => Some(true),
                Some(Value::Bool(truth)) => Some(*truth),
                Some(_) => None,
            };
            match (flag("changes"), flag("result")) {
                (Some(changes), Some(result)) => configured(changes, result).map(|mut said| {
                    let honest =
                        chunk.arguments.get("allow_test_mode_failure") == Some(&Value::Bool(true));
                    said.parameters
                        .insert("fails_in_noop".to_owned(), json!(honest));
                    said
                }),
                _ => Some(with_common(
                    chunk,
                    TypedParameters::failure(
                        "`changes` and `result` must be true or false; `Random` is not supported",
                    ),
                )),
            }
        }
        "test.show_notification" => Some(
            match chunk.arguments.get("text").filter(|text| !text.is_null()) {
                Some(message) => {
                    let mut parameters = common(chunk);
                    parameters.insert("message".to_owned(), json!(text(message)));
                    TypedParameters {
                        type_name: "notify".to_owned(),
                        parameters,
                        sensitive: Vec::new(),
                    }
                }
                None => with_common(
                    chunk,
                    TypedParameters::failure("Missing required argument text."),
                ),
            },
        ),
        "test.check_pillar" => Some(with_common(chunk, check_pillar(chunk, scope))),
        _ => None,
    }
}

fn with_common(chunk: &Chunk, mut said: TypedParameters) -> TypedParameters {
    said.parameters.extend(common(chunk));
    said
}

fn common(chunk: &Chunk) -> Map<String, Value> {
    let own = chunk
        .arguments
        .iter()
        .filter(|(name, _)| EVERYWHERE.contains(&name.as_str()));
    let mut parameters: Map<String, Value> = own
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    super::arguments::settle_common(&mut parameters);
    parameters
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The argument, Python's name of the type, and a check of the type.
type Check = (&'static str, &'static str, fn(&Value) -> bool);

/// Checks that keys of the data exist and have the right type.
fn check_pillar(chunk: &Chunk, scope: &Scope) -> TypedParameters {
    let kinds: [Check; 6] = [
        ("present", "there", |_| true),
        ("boolean", "<class 'bool'>", Value::is_boolean),
        // In Python, a boolean is an integer too.
        ("integer", "<class 'int'>", |value| {
            value.is_i64() || value.is_u64() || value.is_boolean()
        }),
        ("string", "<class 'str'>", Value::is_string),
        ("listing", "<class 'list'>", Value::is_array),
        ("dictionary", "<class 'dict'>", Value::is_object),
    ];
    let mut comment = String::new();
    let mut asked = false;
    for (argument, class, fits) in kinds {
        let keys: Vec<String> = match chunk.arguments.get(argument) {
            Some(Value::String(key)) => vec![key.clone()],
            Some(Value::Array(keys)) => keys.iter().map(text).collect(),
            _ => continue,
        };
        asked |= !keys.is_empty();
        for key in keys {
            match found(&scope.pillar, &key) {
                None | Some(Value::Null) => {
                    comment.push_str(&format!("Pillar key \"{key}\" is missing.\n"))
                }
                Some(value) if !fits(value) => {
                    comment.push_str(&format!("Pillar key \"{key}\" is not {class}.\n"));
                }
                Some(_) => {}
            }
        }
    }
    if !asked {
        return TypedParameters::failure("Missing required argument text.");
    }
    let parameters = json!({"result": comment.is_empty(), "comment": comment.trim_end()});
    TypedParameters {
        type_name: "test".to_owned(),
        parameters: parameters.as_object().cloned().unwrap_or_default(),
        sensitive: Vec::new(),
    }
}

fn found<'a>(data: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut parts = path.split(':');
    let first = data.get(parts.next()?)?;
    parts.try_fold(first, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        value => value.get(part),
    })
}
