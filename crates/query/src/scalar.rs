//! Comparable values: all values that contain no other values.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value;

/// One value. Equal numbers are equal, however they were written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Integer(i64),
    /// The bits of a number with a fraction, or one beyond the range of exact integers.
    Float(u64),
    Text(Arc<str>),
    EmptyList,
    EmptyObject,
}

impl Scalar {
    /// Converts a value. Returns nothing for nonempty lists and objects.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Self::Integer(whole),
                None => Self::float(number.as_f64()?),
            },
            Value::String(text) => Self::Text(Arc::from(text.as_str())),
            Value::Array(items) if items.is_empty() => Self::EmptyList,
            Value::Object(members) if members.is_empty() => Self::EmptyObject,
            Value::Array(_) | Value::Object(_) => return None,
        })
    }

    fn float(number: f64) -> Self {
        // Up to here, every integer has its own float.
        let exact = 9_007_199_254_740_992.0;
        if number.fract() == 0.0 && number.abs() <= exact {
            Self::Integer(number as i64)
        } else {
            Self::Float(number.to_bits())
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Integer(number) => Value::from(*number),
            Self::Float(bits) => Value::from(f64::from_bits(*bits)),
            Self::Text(text) => Value::from(text.as_ref()),
            Self::EmptyList => Value::Array(Vec::new()),
            Self::EmptyObject => Value::Object(serde_json::Map::new()),
        }
    }

    fn as_float(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Float(bits) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }

    /// Compares numbers with numbers and texts with texts; nothing else has an order.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => Some(left.cmp(right)),
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            _ => self.as_float()?.partial_cmp(&other.as_float()?),
        }
    }
}

/// Compares any two JSON values in a total order, for sorting: by kind, then by value.
pub(crate) fn total_order(left: &Value, right: &Value) -> Ordering {
    let kind = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    };
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => {
                let float = |number: &serde_json::Number| number.as_f64().unwrap_or(f64::NAN);
                float(left).total_cmp(&float(right))
            }
        },
        (Value::Array(_) | Value::Object(_), _) if kind(left) == kind(right) => {
            left.to_string().cmp(&right.to_string())
        }
        _ => kind(left).cmp(&kind(right)),
    }
}
