//! Names and parameters of types.

use std::sync::Arc;

use super::{EvalResult, Evaluator, error};
use crate::reference::capitalized;
use crate::source::Span;
use crate::value::types::{Bounds, Member, Type};
use crate::value::{Float, Value};

impl Evaluator<'_> {
    /// Returns a type by its name alone.
    pub(super) fn named_type(&mut self, name: &str, span: Span) -> EvalResult<Type> {
        let any = || Arc::new(Type::Any);
        let open = Bounds::default();
        Ok(match name.strip_prefix("::").unwrap_or(name) {
            "Any" => Type::Any,
            "Undef" => Type::Undef,
            "Default" => Type::Default,
            "Boolean" => Type::Boolean(None),
            "Integer" => Type::Integer(open),
            "Float" => Type::Float(None, None),
            "Numeric" => Type::Numeric,
            "Scalar" | "ScalarData" => Type::Scalar,
            "Data" | "RichData" => Type::Data,
            "String" => Type::String(open),
            "Enum" => Type::Enum(Vec::new()),
            "Pattern" => Type::Pattern(Vec::new()),
            "Regexp" => Type::Regexp,
            "Array" => Type::Array(any(), open),
            "Hash" => Type::Hash(any(), any(), open),
            "Collection" => Type::Collection,
            "Iterable" | "Iterator" => Type::Iterable,
            "Optional" => Type::Optional(any()),
            "NotUndef" => Type::NotUndef(any()),
            "Variant" => Type::Variant(Vec::new()),
            "Tuple" => Type::Tuple(Vec::new(), open),
            "Struct" => Type::Struct(Vec::new()),
            "Sensitive" => Type::Sensitive(any()),
            "Type" => Type::Type,
            "CatalogEntry" => Type::CatalogEntry,
            "Resource" => Type::Resource(None),
            "Class" | "Node" => Type::Resource(Some(name.into())),
            "Callable" | "Runtime" | "Timestamp" | "Timespan" | "SemVer" | "SemVerRange"
            | "Object" | "TypeSet" | "Init" | "Error" | "Deferred" | "URI" | "Binary" => {
                Type::Unknown(name.into())
            }
            other => return self.other_type(other, span),
        })
    }

    /// Returns an alias or a resource type.
    fn other_type(&mut self, name: &str, span: Span) -> EvalResult<Type> {
        match self.alias(name, span)? {
            Some(alias) => self.deeper(span, |evaluator| evaluator.type_of(&alias)),
            None => Ok(Type::Resource(Some(capitalized(name).into()))),
        }
    }

    /// `Type[…]`
    pub(super) fn parameterised(&mut self, of: &Type, keys: Vec<Value>, span: Span) -> EvalResult {
        let made = match of {
            Type::Boolean(_) => match keys.first() {
                Some(Value::Boolean(value)) => Type::Boolean(Some(*value)),
                _ => return error("`Boolean[…]` takes `true` or `false`", span),
            },
            Type::Integer(_) => Type::Integer(bounds(&keys, span)?),
            Type::String(_) => Type::String(bounds(&keys, span)?),
            Type::Float(..) => Type::Float(float(keys.first()), float(keys.get(1))),
            Type::Enum(_) => Type::Enum(texts(&keys, span)?),
            Type::Pattern(_) => Type::Pattern(patterns(&keys, span)?),
            Type::Array(..) => {
                let (of, rest) = leading_type(&keys, span)?;
                Type::Array(Arc::new(of), bounds(rest, span)?)
            }
            Type::Hash(..) => {
                let (key, rest) = leading_type(&keys, span)?;
                let (value, rest) = leading_type(rest, span)?;
                Type::Hash(Arc::new(key), Arc::new(value), bounds(rest, span)?)
            }
            Type::Optional(_) => Type::Optional(Arc::new(single_type(&keys, span)?)),
            Type::NotUndef(_) => Type::NotUndef(Arc::new(single_type(&keys, span)?)),
            Type::Sensitive(_) => Type::Sensitive(Arc::new(single_type(&keys, span)?)),
            Type::Variant(_) => Type::Variant(types(&keys, span)?),
            Type::Tuple(..) => {
                let numbers = keys
                    .iter()
                    .position(|key| matches!(key, Value::Integer(_) | Value::Default));
                let (named, rest) = keys.split_at(numbers.unwrap_or(keys.len()));
                Type::Tuple(types(named, span)?, bounds(rest, span)?)
            }
            Type::Struct(_) => Type::Struct(members(&keys, span)?),
            Type::Type | Type::Iterable | Type::Collection | Type::Unknown(_) => of.clone(),
            other => return error(format!("`{other}` takes no parameters"), span),
        };
        self.shallow(Value::Type(Arc::new(made)), span)
    }
}

fn bounds(keys: &[Value], span: Span) -> EvalResult<Bounds> {
    let bound = |key: Option<&Value>| match key {
        None | Some(Value::Default) => Ok(None),
        Some(Value::Integer(value)) => Ok(Some(*value)),
        Some(other) => error(
            format!("a bound must be a number, not {}", other.kind()),
            span,
        ),
    };
    Ok(Bounds {
        from: bound(keys.first())?,
        to: bound(keys.get(1))?,
    })
}

fn float(key: Option<&Value>) -> Option<Float> {
    match key {
        Some(Value::Float(value)) => Some(*value),
        #[allow(clippy::cast_precision_loss)]
        Some(Value::Integer(value)) => Some(Float(*value as f64)),
        _ => None,
    }
}

fn texts(keys: &[Value], span: Span) -> EvalResult<Vec<Arc<str>>> {
    let text = |key: &Value| match key {
        Value::String(text) => Ok(text.clone()),
        other => error(format!("expected a string, not {}", other.kind()), span),
    };
    keys.iter().map(text).collect()
}

fn patterns(keys: &[Value], span: Span) -> EvalResult<Vec<Arc<str>>> {
    let pattern = |key: &Value| match key {
        Value::String(text) | Value::Regex(text) => Ok(text.clone()),
        Value::Type(of) => match &**of {
            Type::Pattern(inner) if inner.len() == 1 => Ok(inner[0].clone()),
            _ => error("expected a regular expression", span),
        },
        other => error(
            format!("expected a regular expression, not {}", other.kind()),
            span,
        ),
    };
    keys.iter().map(pattern).collect()
}

/// Returns a type. A string stands for the type that accepts only this string.
fn as_type(key: &Value, span: Span) -> EvalResult<Type> {
    match key {
        Value::Type(of) => Ok((**of).clone()),
        Value::String(text) => Ok(Type::Enum(vec![text.clone()])),
        Value::Reference(reference) => {
            Ok(Type::Resource(Some(reference.type_name.as_str().into())))
        }
        other => error(format!("expected a type, not {}", other.kind()), span),
    }
}

fn types(keys: &[Value], span: Span) -> EvalResult<Vec<Type>> {
    keys.iter().map(|key| as_type(key, span)).collect()
}

fn single_type(keys: &[Value], span: Span) -> EvalResult<Type> {
    match keys {
        [one] => as_type(one, span),
        _ => error("expected one type", span),
    }
}

/// Returns the leading type, if there is one: `Array[1, 2]` has none.
fn leading_type(keys: &[Value], span: Span) -> EvalResult<(Type, &[Value])> {
    match keys {
        [] | [Value::Integer(_) | Value::Default, ..] => Ok((Type::Any, keys)),
        [first, rest @ ..] => Ok((as_type(first, span)?, rest)),
    }
}

fn members(keys: &[Value], span: Span) -> EvalResult<Vec<Member>> {
    let [Value::Hash(table)] = keys else {
        return error("`Struct[…]` takes a hash", span);
    };
    let member = |(key, value): (&Value, &Value)| {
        let of = as_type(value, span)?;
        let (name, optional) = match key {
            Value::String(name) => (name.clone(), matches!(of, Type::Optional(_))),
            Value::Type(key) => match &**key {
                Type::Optional(inner) => match &**inner {
                    Type::Enum(names) if names.len() == 1 => (names[0].clone(), true),
                    _ => return error("expected the name of a key", span),
                },
                Type::NotUndef(inner) => match &**inner {
                    Type::Enum(names) if names.len() == 1 => (names[0].clone(), false),
                    _ => return error("expected the name of a key", span),
                },
                _ => return error("expected the name of a key", span),
            },
            other => {
                return error(
                    format!("a key must be a string, not {}", other.kind()),
                    span,
                );
            }
        };
        Ok(Member { name, optional, of })
    };
    table.entries.iter().map(member).collect()
}
