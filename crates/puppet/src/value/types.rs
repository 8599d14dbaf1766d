//! The types of parameters, and the values that they accept.

use std::fmt;
use std::sync::Arc;

use crate::value::{Float, Value};

/// A type, as far as it is needed to check parameters.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    Any,
    Undef,
    Default,
    Boolean(Option<bool>),
    Integer(Bounds),
    Float(Option<Float>, Option<Float>),
    Numeric,
    Scalar,
    Data,
    String(Bounds),
    Enum(Vec<Arc<str>>),
    Pattern(Vec<Arc<str>>),
    Regexp,
    Array(Arc<Type>, Bounds),
    Hash(Arc<Type>, Arc<Type>, Bounds),
    Collection,
    Iterable,
    Optional(Arc<Type>),
    NotUndef(Arc<Type>),
    Variant(Vec<Type>),
    Tuple(Vec<Type>, Bounds),
    Struct(Vec<Member>),
    Sensitive(Arc<Type>),
    Type,
    CatalogEntry,
    /// A resource type without a title (`Sql`), or any (`Resource`).
    Resource(Option<Arc<str>>),
    /// A type that this crate does not know. It accepts everything.
    Unknown(Arc<str>),
}

/// A lower and an upper bound, either of which may be open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bounds {
    pub from: Option<i64>,
    pub to: Option<i64>,
}

/// One key of a `Struct`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    pub name: Arc<str>,
    pub optional: bool,
    pub of: Type,
}

impl Bounds {
    pub(crate) fn holds(self, value: i64) -> bool {
        self.from.is_none_or(|from| value >= from) && self.to.is_none_or(|to| value <= to)
    }

    fn holds_length(self, length: usize) -> bool {
        self.holds(i64::try_from(length).unwrap_or(i64::MAX))
    }
}

impl Type {
    /// Returns true if the type accepts this value.
    pub fn accepts(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Any | Self::Unknown(_), _) => true,
            (Self::Undef, Value::Undef) | (Self::Default, Value::Default) => true,
            (Self::Boolean(wanted), Value::Boolean(value)) => {
                wanted.is_none_or(|one| one == *value)
            }
            (Self::Integer(bounds), Value::Integer(value)) => bounds.holds(*value),
            (Self::Float(from, to), Value::Float(value)) => {
                from.is_none_or(|from| value.0 >= from.0) && to.is_none_or(|to| value.0 <= to.0)
            }
            (Self::Numeric, Value::Integer(_) | Value::Float(_)) => true,
            (Self::Scalar, value) => scalar(value) || matches!(value, Value::Regex(_)),
            (Self::Data, value) => self.accepts_data(value),
            (Self::String(bounds), Value::String(text)) => {
                bounds.holds_length(text.chars().count())
            }
            (Self::Enum(words), Value::String(text)) => words.contains(text),
            (Self::Pattern(patterns), Value::String(text)) => patterns.iter().any(|pattern| {
                crate::pattern::regex(pattern).is_ok_and(|regex| regex.is_match(text))
            }),
            (Self::Regexp, Value::Regex(_)) | (Self::Type, Value::Type(_)) => true,
            (Self::CatalogEntry | Self::Resource(None), Value::Reference(_)) => true,
            (Self::Resource(Some(name)), Value::Reference(reference)) => {
                reference.type_name.as_str() == &**name
            }
            (Self::Type, Value::Reference(_)) => true,
            (Self::Optional(_), Value::Undef) => true,
            (Self::Optional(of), value) => of.accepts(value),
            (Self::NotUndef(of), value) => *value != Value::Undef && of.accepts(value),
            (Self::Variant(types), value) => types.iter().any(|one| one.accepts(value)),
            (Self::Sensitive(of), Value::Sensitive(inner)) => of.accepts(inner),
            (of, value) => of.accepts_collection(value),
        }
    }

    fn accepts_collection(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Collection | Self::Iterable, Value::Array(_) | Value::Hash(_)) => true,
            (Self::Iterable, Value::Integer(_) | Value::String(_)) => true,
            (Self::Array(of, bounds), Value::Array(list)) => {
                bounds.holds_length(list.items.len())
                    && list.items.iter().all(|item| of.accepts(item))
            }
            (Self::Tuple(types, bounds), Value::Array(list)) => {
                let enough = if *bounds == Bounds::default() {
                    list.items.len() == types.len()
                } else {
                    bounds.holds_length(list.items.len())
                };
                let mut items = list.items.iter().enumerate();
                let at = |index: usize| types.get(index).or(types.last());
                enough && items.all(|(index, item)| at(index).is_some_and(|of| of.accepts(item)))
            }
            (Self::Hash(keys, values, bounds), Value::Hash(table)) => {
                let mut entries = table.entries.iter();
                bounds.holds_length(table.entries.len())
                    && entries.all(|(key, value)| keys.accepts(key) && values.accepts(value))
            }
            (Self::Struct(members), Value::Hash(table)) => {
                let known = |key: &Value| {
                    members
                        .iter()
                        .any(|member| key.as_str() == Some(&*member.name))
                };
                table.entries.keys().all(known)
                    && members.iter().all(|member| {
                        let value = table.entries.get(&Value::String(member.name.clone()));
                        match value {
                            Some(value) => member.of.accepts(value),
                            None => member.optional || member.of.accepts(&Value::Undef),
                        }
                    })
            }
            _ => false,
        }
    }

    fn accepts_data(&self, value: &Value) -> bool {
        match value {
            Value::Undef => true,
            Value::Array(list) => list.items.iter().all(|item| self.accepts_data(item)),
            Value::Hash(table) => table
                .entries
                .iter()
                .all(|(key, value)| key.as_str().is_some() && self.accepts_data(value)),
            value => scalar(value),
        }
    }

    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::Array(of, _) | Self::Optional(of) | Self::NotUndef(of) | Self::Sensitive(of) => {
                1 + of.depth()
            }
            Self::Hash(key, value, _) => 1 + key.depth().max(value.depth()),
            Self::Variant(types) | Self::Tuple(types, _) => {
                1 + types.iter().map(Self::depth).max().unwrap_or(0)
            }
            Self::Struct(members) => {
                1 + members
                    .iter()
                    .map(|member| member.of.depth())
                    .max()
                    .unwrap_or(0)
            }
            _ => 0,
        }
    }
}

fn scalar(value: &Value) -> bool {
    matches!(
        value,
        Value::Boolean(_) | Value::Integer(_) | Value::Float(_) | Value::String(_)
    )
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |bound: Option<i64>| bound.map_or("default".to_owned(), |at| at.to_string());
        match (self.from, self.to) {
            (from, None) => f.write_str(&shown(from)),
            (from, to) => write!(f, "{}, {}", shown(from), shown(to)),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = Bounds::default();
        let list = |types: &[Type]| {
            let texts: Vec<String> = types.iter().map(Type::to_string).collect();
            texts.join(", ")
        };
        match self {
            Self::Boolean(Some(value)) => write!(f, "Boolean[{value}]"),
            Self::Integer(bounds) if *bounds != open => write!(f, "Integer[{bounds}]"),
            Self::String(bounds) if *bounds != open => write!(f, "String[{bounds}]"),
            Self::Enum(words) => write!(f, "Enum['{}']", words.join("', '")),
            Self::Pattern(patterns) => write!(f, "Pattern[/{}/]", patterns.join("/, /")),
            Self::Array(of, bounds) if *bounds == open && **of == Type::Any => f.write_str("Array"),
            Self::Array(of, bounds) if *bounds == open => write!(f, "Array[{of}]"),
            Self::Array(of, bounds) => write!(f, "Array[{of}, {bounds}]"),
            Self::Hash(key, value, _) if **key == Type::Any && **value == Type::Any => {
                f.write_str("Hash")
            }
            Self::Hash(key, value, bounds) if *bounds == open => write!(f, "Hash[{key}, {value}]"),
            Self::Hash(key, value, bounds) => write!(f, "Hash[{key}, {value}, {bounds}]"),
            Self::Optional(of) => write!(f, "Optional[{of}]"),
            Self::NotUndef(of) => write!(f, "NotUndef[{of}]"),
            Self::Sensitive(of) => write!(f, "Sensitive[{of}]"),
            Self::Variant(types) => write!(f, "Variant[{}]", list(types)),
            Self::Tuple(types, _) => write!(f, "Tuple[{}]", list(types)),
            Self::Struct(members) => {
                let shown = members.iter().map(|member| {
                    if member.optional {
                        format!("Optional['{}'] => {}", member.name, member.of)
                    } else {
                        format!("'{}' => {}", member.name, member.of)
                    }
                });
                write!(f, "Struct[{{{}}}]", shown.collect::<Vec<_>>().join(", "))
            }
            Self::Resource(Some(name)) | Self::Unknown(name) => f.write_str(name),
            Self::Resource(None) => f.write_str("Resource"),
            other => f.write_str(other.plain_name()),
        }
    }
}

impl Type {
    fn plain_name(&self) -> &'static str {
        match self {
            Self::Any => "Any",
            Self::Undef => "Undef",
            Self::Default => "Default",
            Self::Boolean(_) => "Boolean",
            Self::Integer(_) => "Integer",
            Self::Float(..) => "Float",
            Self::Numeric => "Numeric",
            Self::Scalar => "Scalar",
            Self::Data => "Data",
            Self::String(_) => "String",
            Self::Regexp => "Regexp",
            Self::Collection => "Collection",
            Self::Iterable => "Iterable",
            Self::Type => "Type",
            Self::CatalogEntry => "CatalogEntry",
            _ => "Any",
        }
    }
}
