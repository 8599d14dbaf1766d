//! Puppet's rich data: values that JSON has no word for.
//!
//! They are written as `{"__ptype": NAME, "__pvalue": …}`. A catalog keeps
//! them as they came; [`plain`] gives the value that a resource type reads.

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
    /// Reads the wrapping, if it is one.
    pub fn of(value: &'a Value) -> Option<Self> {
        let members = value.as_object()?;
        Some(Self {
            type_name: members.get("__ptype")?.as_str()?,
            value: members.get("__pvalue"),
            members,
        })
    }
}

/// Whether a secret is anywhere inside.
pub fn is_sensitive(value: &Value) -> bool {
    any(value, &mut |rich| rich.type_name == "Sensitive")
}

/// Whether some rich value inside satisfies the question. Deep values are
/// bounded by the JSON reader's own limit of 128 levels.
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

/// The value without its wrappings: secrets opened, `Default` as the word,
/// hashes with their keys as text, times and patterns as their text.
/// `Binary` and `Deferred` stay wrapped: only their reader can decide.
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
