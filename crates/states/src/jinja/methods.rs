//! Methods of Python's strings that the template engine lacks.
//!
//! Separators are compared with the original characters of facts, so that both renderings of a file
//! decide the same.

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::filters::invalid;
use super::mutable::{Dict, List, owned};
use super::python;
use super::taint;

/// Calls a method that the value itself does not have.
pub(super) fn unknown(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(answer) = of_text(text, method, arguments)?
    {
        return Ok(answer);
    }
    // A literal has the methods that it would have in a variable.
    if matches!(value.kind(), ValueKind::Map | ValueKind::Seq) {
        let own = owned(value);
        let is_ours =
            own.downcast_object::<Dict>().is_some() || own.downcast_object::<List>().is_some();
        let is_literal =
            value.downcast_object::<Dict>().is_none() && value.downcast_object::<List>().is_none();
        if is_ours && is_literal {
            match own.call_method(state, method, arguments) {
                Err(error) if error.kind() == ErrorKind::UnknownMethod => {}
                answer => return answer,
            }
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

fn of_text(text: &str, method: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    let separator = || match arguments.first().and_then(Value::as_str) {
        Some(separator) if !separator.is_empty() => Ok(taint::decoded(separator).into_owned()),
        _ => Err(invalid(format!("`{method}` needs a separator"))),
    };
    let padded = |left: bool, right: bool| -> Result<Value, Error> {
        let (width, fill): (usize, Option<&str>) = from_args(arguments)?;
        let missing = width.saturating_sub(text.chars().count());
        if width > super::LONGEST_VALUE {
            return Err(super::filters::too_long());
        }
        let before = match (left, right) {
            (true, true) => missing / 2,
            (true, false) => missing,
            _ => 0,
        };
        let fill = fill.unwrap_or(" ");
        let (before, after) = (fill.repeat(before), fill.repeat(missing - before));
        Ok(Value::from(format!("{before}{text}{after}")))
    };
    let answer = match method {
        "partition" | "rpartition" => {
            let separator = separator()?;
            let mut parts = taint::split(text, &separator);
            let found = parts.len() > 1;
            let (first, last) = if method == "partition" {
                let first = parts.remove(0);
                (first, parts.join(&separator))
            } else {
                let last = parts.pop().unwrap_or_default();
                (parts.join(&separator), last)
            };
            let middle = if found { separator.as_str() } else { "" };
            texts([first.as_str(), middle, last.as_str()])
        }
        "rsplit" if !arguments.is_empty() && arguments[0].as_str().is_some() => {
            let (_, most): (&str, Option<usize>) = from_args(arguments)?;
            let separator = separator()?;
            let mut parts = taint::split(text, &separator);
            let kept = most.unwrap_or(usize::MAX).min(parts.len() - 1);
            let tail = parts.split_off(parts.len() - kept);
            let head = parts.join(&separator);
            texts(std::iter::once(head.as_str()).chain(tail.iter().map(String::as_str)))
        }
        "format" => formatted(text, arguments)?,
        "zfill" => {
            let (width,): (usize,) = from_args(arguments)?;
            let missing = width.min(4096).saturating_sub(text.chars().count());
            let (sign, digits) = match text.strip_prefix(['-', '+']) {
                Some(digits) => text.split_at(text.len() - digits.len()),
                None => ("", text),
            };
            Value::from(format!("{sign}{}{digits}", "0".repeat(missing)))
        }
        "ljust" => padded(false, true)?,
        "rjust" => padded(true, false)?,
        "center" => padded(true, true)?,
        "swapcase" => {
            let swapped = text.chars().map(|c| {
                if c.is_uppercase() {
                    c.to_lowercase().collect::<String>()
                } else {
                    c.to_uppercase().collect()
                }
            });
            Value::from(swapped.collect::<String>())
        }
        "encode" | "decode" => Value::from(text),
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

fn texts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Value {
    List::value(parts.into_iter().map(Value::from))
}

/// Implements `'{} {name}'.format(…)` with positions and names, without format specifications.
fn formatted(text: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (positional, named): (&[Value], Kwargs) = from_args(arguments)?;
    let mut out = String::new();
    let mut next = 0;
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        if after.starts_with(brace) {
            out.push_str(brace);
            rest = &after[1..];
            continue;
        }
        let Some((field, after)) = after.split_once('}').filter(|_| brace == "{") else {
            return Err(invalid("a single brace in the text of `format`"));
        };
        let value = match (field, field.parse::<usize>()) {
            ("", _) => {
                next += 1;
                positional.get(next - 1).cloned()
            }
            (_, Ok(index)) => positional.get(index).cloned(),
            (name, Err(_)) => named.get::<Option<Value>>(name)?,
        };
        let value =
            value.ok_or_else(|| invalid(format!("`format` has no value for {{{field}}}")))?;
        if value.is_undefined() {
            return Err(Error::from(ErrorKind::UndefinedError));
        }
        out.push_str(&python::text(&value));
        rest = after;
    }
    out.push_str(rest);
    Ok(Value::from(out))
}
