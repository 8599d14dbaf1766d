//! Template values from JSON and to JSON.

use minijinja::Value;
use minijinja::value::ValueKind;
use serde_json::{Map, Value as Json};

use super::mutable::{Dict, List, is_ordered};

pub(crate) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => List::value(items.iter().map(from_json)),
        Json::Object(members) => Dict::value(
            members
                .iter()
                .map(|(key, member)| (Value::from(key.as_str()), from_json(member))),
        ),
    }
}

/// Returns the same, with maps that keep their order in YAML.
pub(crate) fn ordered_from_json(json: &Json) -> Value {
    match json {
        Json::Array(items) => List::value(items.iter().map(ordered_from_json)),
        Json::Object(members) => Dict::ordered(
            (members.iter())
                .map(|(key, member)| (Value::from(key.as_str()), ordered_from_json(member))),
        ),
        scalar => from_json(scalar),
    }
}

pub(crate) fn to_json(value: &Value) -> Json {
    deep_json(value, KeyOrder::Kept, 0)
}

/// The order of keys in text formats.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum KeyOrder {
    Kept,
    Sorted,
    /// Sorted, except in maps that keep their order.
    SortedUnlessOrdered,
}

pub(crate) fn json_in_order(value: &Value, order: KeyOrder) -> Json {
    deep_json(value, order, 0)
}

/// Sorts by key. Numbers are sorted as numbers.
fn sorted(members: Map<String, Json>) -> Map<String, Json> {
    let mut pairs: Vec<(String, Json)> = members.into_iter().collect();
    let number = |key: &str| key.parse::<i64>().ok();
    if pairs.iter().all(|(key, _)| number(key).is_some()) {
        pairs.sort_by_key(|(key, _)| number(key));
    } else {
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    pairs.into_iter().collect()
}

fn deep_json(value: &Value, order: KeyOrder, depth: usize) -> Json {
    if depth > 128 {
        return Json::Null;
    }
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => Json::Null,
        ValueKind::Bool => Json::Bool(value.is_true()),
        ValueKind::Number => {
            if let Some(number) = value.as_i64() {
                Json::from(number)
            } else {
                f64::try_from(value.clone())
                    .ok()
                    .and_then(serde_json::Number::from_f64)
                    .map_or(Json::Null, Json::Number)
            }
        }
        ValueKind::Seq | ValueKind::Iterable => value
            .try_iter()
            .into_iter()
            .flatten()
            .map(|item| deep_json(&item, order, depth + 1))
            .collect(),
        ValueKind::Map => {
            let mut members = Map::new();
            for key in value.try_iter().into_iter().flatten() {
                let member = value.get_item(&key).unwrap_or_default();
                members.insert(
                    super::python::text(&key),
                    deep_json(&member, order, depth + 1),
                );
            }
            let keeps_order = match order {
                KeyOrder::Kept => true,
                KeyOrder::Sorted => false,
                KeyOrder::SortedUnlessOrdered => is_ordered(value),
            };
            Json::Object(if keeps_order {
                members
            } else {
                sorted(members)
            })
        }
        _ => Json::from(super::python::text(value)),
    }
}
