//! Puppet's rich data: values that JSON cannot express.
//!
//! They are written as `{"__ptype": NAME, "__pvalue": …}`. A catalog keeps them unchanged;
//! [`plain`] returns the value that a resource type reads.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// A value with a `__ptype`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RichData<'a> {
    pub type_name: &'a str,
    pub value: Option<&'a Value>,
    pub members: &'a Map<String, Value>,
}

impl<'a> RichData<'a> {
    /// Parses a value with a `__ptype`; `None` for any other value.
    pub fn of(value: &'a Value) -> Option<Self> {
        let members = value.as_object()?;
        Some(Self {
            type_name: members.get("__ptype")?.as_str()?,
            value: members.get("__pvalue"),
            members,
        })
    }
}

/// Returns whether a secret is anywhere inside.
pub fn is_sensitive(value: &Value) -> bool {
    any(value, &mut |rich| rich.type_name == "Sensitive")
}

/// Returns whether any rich value inside matches. The JSON reader's limit of 128 levels bounds the
/// depth.
fn any(value: &Value, question: &mut impl FnMut(RichData<'_>) -> bool) -> bool {
    match value {
        Value::Object(members) => {
            RichData::of(value).is_some_and(&mut *question)
                || members.values().any(|member| any(member, question))
        }
        Value::Array(items) => items.iter().any(|item| any(item, question)),
        _ => false,
    }
}

/// Returns the value without its wrappers: secrets are unwrapped, `Default` becomes the word,
/// hashes get text keys, and times and patterns become text. `Binary` and `Deferred` stay wrapped,
/// because only their reader can decide.
pub fn plain(value: &Value) -> Cow<'_, Value> {
    if any(value, &mut |_| true) {
        Cow::Owned(unwrapped(value))
    } else {
        Cow::Borrowed(value)
    }
}

fn unwrapped(value: &Value) -> Value {
    match (RichData::of(value), value) {
        (Some(rich), _) => unwrapped_rich(rich, value),
        (None, Value::Object(members)) => members
            .iter()
            .map(|(key, member)| (key.clone(), unwrapped(member)))
            .collect(),
        (None, Value::Array(items)) => items.iter().map(unwrapped).collect(),
        (None, scalar) => scalar.clone(),
    }
}

fn unwrapped_rich(rich: RichData<'_>, whole: &Value) -> Value {
    match (rich.type_name, rich.value) {
        ("Binary" | "Deferred", _) => whole.clone(),
        ("Default", _) => Value::from("default"),
        ("Hash", Some(Value::Array(pairs))) => pairs
            .chunks_exact(2)
            .map(|pair| {
                let key = match unwrapped(&pair[0]) {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                (key, unwrapped(&pair[1]))
            })
            .collect(),
        (_, Some(value)) => unwrapped(value),
        (_, None) => whole.clone(),
    }
}
