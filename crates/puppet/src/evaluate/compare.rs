//! Equality and order of values.

use std::cmp::Ordering;

use crate::value::{Float, Value};

/// Implements `==`: numbers by value, texts case-insensitively.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::String(one), Value::String(other)) => same_text(one, other),
        (Value::Array(one), Value::Array(other)) => {
            one.items.len() == other.items.len()
                && one
                    .items
                    .iter()
                    .zip(&other.items)
                    .all(|(one, other)| equal(one, other))
        }
        (Value::Hash(one), Value::Hash(other)) => {
            one.entries.len() == other.entries.len()
                && one.entries.iter().all(|(key, value)| {
                    other
                        .entries
                        .get(key)
                        .is_some_and(|found| equal(value, found))
                })
        }
        (one, other) => match (number(one), number(other)) {
            (Some(_), Some(_)) => order(one, other) == Some(Ordering::Equal),
            _ => one == other,
        },
    }
}

fn same_text(one: &str, other: &str) -> bool {
    one == other || (one.len() == other.len() && one.eq_ignore_ascii_case(other)) || {
        one.chars()
            .flat_map(char::to_lowercase)
            .eq(other.chars().flat_map(char::to_lowercase))
    }
}

/// Implements `<` for numbers and texts. Returns nothing if the values have no order.
pub(crate) fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Integer(one), Value::Integer(other)) => Some(one.cmp(other)),
        (Value::String(one), Value::String(other)) => {
            Some(one.to_lowercase().cmp(&other.to_lowercase()))
        }
        (one, other) => number(one)?.partial_cmp(&number(other)?),
    }
}

#[allow(clippy::cast_precision_loss)]
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Float(Float(value)) => Some(*value),
        _ => None,
    }
}
