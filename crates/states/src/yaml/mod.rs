//! YAML as Salt reads it, with the position of every node.
//!
//! The scanner is for YAML 1.2. The types of plain scalars (numbers, booleans and so on) follow the
//! YAML 1.1 rules that state files are written for, with Salt's own change for leading zeros
//! (`mode: 0644` is 644, not 420). Duplicate keys are errors. Aliases count with the size of their
//! target, so a small file cannot become a large tree.

mod compose;
mod scalar;

pub(crate) use compose::{YamlError, parse};
pub(crate) use scalar::resolve;

use serde_json::{Map, Value};

/// A value and its start in the parsed text (both from 1).
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub value: Yaml,
    pub line: usize,
    pub column: usize,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Yaml {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// The pairs in the order of the text; keys are unique.
    Map(Vec<(Node, Node)>),
}

impl Node {
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Yaml::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a key in the form of Python's `str()`: `80`, `True`, `None`.
    pub fn key_text(&self) -> String {
        match &self.value {
            Yaml::Null => "None".to_owned(),
            Yaml::Bool(true) => "True".to_owned(),
            Yaml::Bool(false) => "False".to_owned(),
            Yaml::Int(number) => number.to_string(),
            Yaml::Float(number) => float_text(*number),
            Yaml::Text(text) => text.clone(),
            Yaml::List(_) | Yaml::Map(_) => self.to_json().to_string(),
        }
    }

    pub fn as_map(&self) -> Option<&[(Node, Node)]> {
        match &self.value {
            Yaml::Map(pairs) => Some(pairs),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            Yaml::List(items) => Some(items),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        self.value == Yaml::Null
    }

    /// Returns the name of this kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Yaml::Null => "nothing",
            Yaml::Bool(_) => "a boolean",
            Yaml::Int(_) | Yaml::Float(_) => "a number",
            Yaml::Text(_) => "text",
            Yaml::List(_) => "a list",
            Yaml::Map(_) => "a map",
        }
    }

    /// Returns the value without positions.
    pub fn to_json(&self) -> Value {
        match &self.value {
            Yaml::Null => Value::Null,
            Yaml::Bool(truth) => Value::Bool(*truth),
            Yaml::Int(number) => Value::from(*number),
            Yaml::Float(number) => serde_json::Number::from_f64(*number)
                .map_or_else(|| Value::from(float_text(*number)), Value::Number),
            Yaml::Text(text) => Value::from(text.clone()),
            Yaml::List(items) => items.iter().map(Node::to_json).collect(),
            Yaml::Map(pairs) => {
                let members: Map<String, Value> = pairs
                    .iter()
                    .map(|(key, value)| (key.key_text(), value.to_json()))
                    .collect();
                Value::Object(members)
            }
        }
    }
}

/// Formats a float like Python's `str()`.
pub(crate) fn float_text(number: f64) -> String {
    if number.is_nan() {
        "nan".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else {
        format!("{number:?}")
    }
}

#[cfg(test)]
mod tests;
