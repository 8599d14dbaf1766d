//! The values of the language.

mod rich;
pub(crate) mod types;

use std::fmt;
use std::hash::{Hash as StdHash, Hasher};
use std::sync::Arc;

use indexmap::IndexMap;

use crate::reference::Reference;
use types::Type;

/// A hash, with its keys in the order of the source.
pub type Hash = IndexMap<Value, Value>;

/// A value. Collections are shared, so a copy is cheap.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    Undef,
    Default,
    Boolean(bool),
    Integer(i64),
    Float(Float),
    String(Arc<str>),
    Regex(Arc<str>),
    Array(Arc<List>),
    Hash(Arc<Table>),
    Type(Arc<Type>),
    Reference(Arc<Reference>),
    Sensitive(Box<Value>),
}

/// A floating point number that is equal to itself.
#[derive(Clone, Copy, Debug)]
pub struct Float(pub f64);

impl PartialEq for Float {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Float {}

impl StdHash for Float {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// The items of an array, and their nesting depth.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct List {
    pub items: Vec<Value>,
    depth: usize,
}

/// The entries of a hash, and their nesting depth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    pub entries: Hash,
    depth: usize,
}

impl StdHash for Table {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Equal tables may differ in order: hash only what they have in common.
        self.entries.len().hash(state);
    }
}

impl Value {
    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Self::String(Arc::from(text.as_ref()))
    }

    /// Creates a list. Use it only for values with checked depth and length; see
    /// `Evaluator::array`.
    pub(crate) fn list(items: Vec<Value>) -> Self {
        let depth = 1 + items.iter().map(Value::depth).max().unwrap_or(0);
        Self::Array(Arc::new(List { items, depth }))
    }

    pub(crate) fn table(entries: Hash) -> Self {
        let deepest = entries
            .iter()
            .map(|(key, value)| key.depth().max(value.depth()));
        let depth = 1 + deepest.max().unwrap_or(0);
        Self::Hash(Arc::new(Table { entries, depth }))
    }

    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::Array(list) => list.depth,
            Self::Hash(table) => table.depth,
            Self::Sensitive(inner) => 1 + inner.depth(),
            Self::Type(of) => of.depth(),
            _ => 0,
        }
    }

    /// Returns true for everything except `undef` and `false`.
    pub(crate) fn is_true(&self) -> bool {
        !matches!(self, Self::Undef | Self::Boolean(false))
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the name of this kind of value, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Undef => "undef",
            Self::Default => "default",
            Self::Boolean(_) => "a Boolean",
            Self::Integer(_) => "an Integer",
            Self::Float(_) => "a Float",
            Self::String(_) => "a String",
            Self::Regex(_) => "a Regexp",
            Self::Array(_) => "an Array",
            Self::Hash(_) => "a Hash",
            Self::Type(_) => "a Type",
            Self::Reference(_) => "a reference",
            Self::Sensitive(_) => "a Sensitive",
        }
    }

    /// Returns the value as JSON, without secrets.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Undef => Json::Null,
            Self::Boolean(value) => Json::from(*value),
            Self::Integer(value) => Json::from(*value),
            Self::Float(Float(value)) => Json::from(*value),
            Self::Array(list) => list.items.iter().map(Self::to_json).collect(),
            Self::Hash(table) => table
                .entries
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => Json::from(other.to_string()),
        }
    }

    /// Converts JSON to a value.
    pub fn from_json(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Self::Undef,
            Json::Bool(value) => Self::Boolean(*value),
            Json::Number(number) => match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                None => Self::Float(Float(number.as_f64().unwrap_or(f64::NAN))),
            },
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::list(items.iter().map(Self::from_json).collect()),
            Json::Object(entries) => {
                let entries = entries.iter();
                let entries = entries.map(|(key, value)| (Self::text(key), Self::from_json(value)));
                Self::table(entries.collect())
            }
        }
    }

    /// Writes the text of a value. Stops when it becomes longer than `most`.
    pub(crate) fn write_bounded(&self, out: &mut String, most: usize) -> bool {
        let mut bounded = BoundedWriter { out, most };
        fmt::write(&mut bounded, format_args!("{self}")).is_ok()
    }
}

struct BoundedWriter<'a> {
    out: &'a mut String,
    most: usize,
}

impl fmt::Write for BoundedWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.out.len() + text.len() > self.most {
            return Err(fmt::Error);
        }
        self.out.push_str(text);
        Ok(())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undef => Ok(()),
            Self::Default => f.write_str("default"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(Float(value)) => {
                if value.fract() == 0.0 && value.abs() < 1e15 {
                    write!(f, "{value:.1}")
                } else {
                    write!(f, "{value}")
                }
            }
            Self::String(text) => f.write_str(text),
            Self::Regex(pattern) => write!(f, "/{pattern}/"),
            Self::Array(list) => {
                f.write_str("[")?;
                for (index, item) in list.items.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    write!(f, "{item}")?;
                }
                f.write_str("]")
            }
            Self::Hash(table) => {
                f.write_str("{")?;
                for (index, (key, value)) in table.entries.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    write!(f, "{key} => {value}")?;
                }
                f.write_str("}")
            }
            Self::Type(of) => write!(f, "{of}"),
            Self::Reference(reference) => write!(f, "{reference}"),
            Self::Sensitive(_) => f.write_str("Sensitive [value redacted]"),
        }
    }
}
