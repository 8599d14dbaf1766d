//! Python's notation for values: `True`, `None`, `['a', 1]`, `{'a': 1.0}`.
//!
//! State files rely on it: `- names: {{ list }}` is read as YAML afterwards.

use std::fmt::Write as _;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Output, State, Value};

use super::taint::{decoded, original};
use crate::yaml::float_text;

/// Formats a value, as the engine's formatter.
pub(super) fn format(
    out: &mut Output<'_>,
    state: &State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    if value.is_undefined() {
        let strict = state.undefined_behavior() == minijinja::UndefinedBehavior::Strict;
        return if strict {
            Err(Error::from(ErrorKind::UndefinedError))
        } else {
            Ok(())
        };
    }
    out.write_str(&text(value)).map_err(Error::from)
}

/// Implements Python's `str()`.
pub(super) fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => representation(value),
    }
}

/// Implements Python's `repr()`.
pub(super) fn representation(value: &Value) -> String {
    let mut out = String::new();
    write_into(&mut out, value, 0);
    out
}

fn write_into(out: &mut String, value: &Value, depth: usize) {
    if depth > 64 {
        // The list contains itself.
        out.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::String => quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Number => match (value.is_integer(), f64::try_from(value.clone())) {
            (false, Ok(number)) => out.push_str(&float_text(number)),
            _ => {
                let _ = write!(out, "{value}");
            }
        },
        ValueKind::Seq | ValueKind::Iterable => {
            let Ok(items) = value.try_iter() else {
                let _ = write!(out, "{value}");
                return;
            };
            out.push('[');
            for (index, item) in items.enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_into(out, &item, depth + 1);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_into(out, &key, depth + 1);
                out.push_str(": ");
                write_into(out, &value.get_item(&key).unwrap_or_default(), depth + 1);
            }
            out.push('}');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

fn quoted(out: &mut String, text: &str) {
    // Python escapes a quote with a backslash, which YAML reads as the end of the text.
    let plain = decoded(text);
    if plain.contains('\'') && plain.contains('"') {
        out.push_str(&super::emit::double_quoted(&plain));
        return;
    }
    let quote = if plain.contains('\'') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match original(character) {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            same if same == quote => {
                out.push('\\');
                out.push(quote);
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
}
