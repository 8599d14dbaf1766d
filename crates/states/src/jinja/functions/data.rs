//! Functions that look up grains, pillar data and configuration.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::{Arguments, Scope, merging};
use crate::jinja::filters::invalid;
use crate::jinja::mutable::{Dict, List, owned};
use crate::jinja::traverse::traverse;
use crate::jinja::{python, taint};
use crate::matcher::{matches_compound, matches_glob};

/// Implements `grains.get(key, default='', delimiter=':')`.
pub(super) fn grain(scope: &Scope, arguments: &Arguments) -> Result<Value, Error> {
    let key = arguments.text(0, "key")?;
    let found = traverse(&scope.grains_value, &key, &delimiter(arguments, 2));
    Ok(found.unwrap_or_else(|| default(arguments)))
}

/// Implements `pillar.get(key, default='', merge=False, merge_nested_lists=None, delimiter=':')`.
pub(super) fn pillar(scope: &Scope, arguments: &Arguments) -> Result<Value, Error> {
    let key = arguments.text(0, "key")?;
    let found = traverse(&scope.pillar_value, &key, &delimiter(arguments, 4));
    if !arguments.is_true(2, "merge", false) {
        return Ok(found.unwrap_or_else(|| default(arguments)));
    }
    let (default, merges_lists) = (
        default(arguments),
        arguments.is_true(3, "merge_nested_lists", false),
    );
    match (default.kind(), found) {
        (ValueKind::Map, Some(found)) if found.kind() == ValueKind::Map => {
            merging::update(&merging::deep_copy(&default)?, &found, merges_lists)
        }
        (ValueKind::Seq, Some(found)) if found.kind() == ValueKind::Seq => {
            let mut items: Vec<Value> = default.try_iter()?.collect();
            for item in found.try_iter()? {
                if !items.contains(&item) {
                    items.push(item);
                }
            }
            Ok(List::value(items))
        }
        (_, found) => Ok(found.unwrap_or(default)),
    }
}

/// Implements `pillar.fetch(key, default=KeyError)`.
pub(super) fn fetch(scope: &Scope, arguments: &Arguments) -> Result<Value, Error> {
    let key = arguments.text(0, "key")?;
    let found = traverse(&scope.pillar_value, &key, &delimiter(arguments, 2));
    let default = arguments.get(1, "default").map(|value| owned(&value));
    found
        .or(default)
        .ok_or_else(|| invalid(format!("the pillar has no key `{key}`")))
}

fn delimiter(arguments: &Arguments, position: usize) -> String {
    let given = arguments.get(position, "delimiter");
    given.map_or(":".to_owned(), |value| python::text(&value))
}

/// Returns the default as it is: an undefined variable stays undefined.
fn default(arguments: &Arguments) -> Value {
    let given = arguments.get(1, "default");
    given.map_or_else(|| Value::from(""), |value| owned(&value))
}

/// Implements `config.get(key, default='', delimiter=':', merge=None)`: the configuration, then
/// grains, then the pillar.
pub(super) fn config(scope: &Scope, arguments: &Arguments) -> Result<Value, Error> {
    let key = arguments.text(0, "key")?;
    let delimiter = delimiter(arguments, 2);
    let strategy = (arguments.get(3, "merge")).filter(|strategy| !strategy.is_none());
    let sources = [&scope.opts, &scope.grains_value, &scope.pillar_value];
    let found = match strategy {
        None => (sources.into_iter()).find_map(|data| traverse(data, &key, &delimiter)),
        Some(strategy) => {
            let overwrites = strategy.as_str() == Some("overwrite");
            let mut merged = Dict::value([]);
            for data in sources.into_iter().rev() {
                merged = merging::merged(&merged, data, overwrites, false)?;
            }
            traverse(&merged, &key, &delimiter)
        }
    };
    Ok(found.unwrap_or_else(|| default(arguments)))
}

pub(super) fn items(scope: &Scope, name: &str, arguments: &Arguments) -> Result<Value, Error> {
    let data = if name.starts_with("grains") {
        &scope.grains_value
    } else {
        &scope.pillar_value
    };
    let pairs = arguments.positional.iter().map(|key| {
        let found = traverse(data, &python::text(key), ":");
        (key.clone(), found.unwrap_or_else(|| Value::from("")))
    });
    Ok(Dict::value(pairs))
}

pub(super) fn has_value(scope: &Scope, arguments: &Arguments) -> Result<Value, Error> {
    let found = traverse(&scope.grains_value, &arguments.text(0, "key")?, ":");
    Ok(Value::from(found.is_some_and(|value| value.is_true())))
}

pub(super) fn keys(scope: &Scope, arguments: &Arguments) -> Result<Value, Error> {
    let key = arguments.text(0, "key")?;
    let found = traverse(&scope.pillar_value, &key, ":")
        .ok_or_else(|| invalid(format!("the pillar has no key `{key}`")))?;
    Ok(List::value(found.try_iter()?))
}

/// Implements `filter_by(lookup_dict, grain, merge=None, default='default', base=None)`.
pub(super) fn filter_by(data: &Value, usual: &str, arguments: &Arguments) -> Result<Value, Error> {
    let lookup = arguments.required(0, "lookup_dict")?;
    if lookup.kind() != ValueKind::Map {
        return Err(invalid("`lookup_dict` must be a map"));
    }
    let name = if usual == "os_family" {
        "grain"
    } else {
        "pillar"
    };
    let path = arguments
        .get(1, name)
        .map_or(usual.to_owned(), |value| python::text(&value));
    let wanted: Vec<Value> = match traverse(data, &path, ":") {
        Some(value) if value.kind() == ValueKind::Seq => value.try_iter()?.collect(),
        Some(value) => vec![value],
        None => Vec::new(),
    };
    let entry = |key: &Value| {
        let found = lookup.get_item(key).ok()?;
        (!found.is_none() && !found.is_undefined()).then(|| owned(&found))
    };
    let mut found = None;
    for value in &wanted {
        let text = python::text(value);
        let text = taint::decoded(&text);
        let mut keys = lookup.try_iter()?;
        // The first pattern that matches wins, even if it has no value.
        let matching = keys.find(|key| matches_glob(&taint::decoded(&python::text(key)), &text));
        found = matching.and_then(|key| entry(&key));
        if found.is_some() {
            break;
        }
    }
    let default = arguments.get(3, "default");
    let default = default.unwrap_or_else(|| Value::from("default"));
    let mut answer = found.or_else(|| entry(&default));
    if let Some(base) = arguments.get(4, "base").filter(Value::is_true)
        && let Some(base) = entry(&base)
    {
        answer = Some(match answer {
            None => base,
            Some(over) if base.kind() == ValueKind::Map => {
                if over.kind() != ValueKind::Map {
                    return Err(invalid(
                        "the values of `filter_by` must be maps if it has a `base`",
                    ));
                }
                merging::update(&merging::deep_copy(&base)?, &over, false)?
            }
            Some(over) => over,
        });
    }
    if let Some(over) = arguments.get(2, "merge").filter(Value::is_true) {
        if over.kind() != ValueKind::Map {
            return Err(invalid("the argument `merge` of `filter_by` must be a map"));
        }
        answer = Some(match answer {
            None => owned(&over),
            Some(answer) => merging::update(&answer, &merging::deep_copy(&over)?, false)?,
        });
    }
    Ok(answer.unwrap_or_else(|| Value::from(())))
}

pub(super) fn matched(scope: &Scope, name: &str, arguments: &Arguments) -> Result<Value, Error> {
    let expression = arguments.text(0, "tgt")?;
    let expression = match name {
        "match.grain" => format!("G@{expression}"),
        "match.pillar" => format!("I@{expression}"),
        "match.list" => format!("L@{expression}"),
        _ => expression,
    };
    matches_compound(&expression, scope.subject())
        .map(Value::from)
        .map_err(|error| invalid(error.to_string()))
}
