//! Conversions between kinds of values.

use super::{Arguments, Function};
use crate::diagnostic::Diagnostic;
use crate::evaluate::{EvalResult, Evaluator, error};
use crate::value::types::Type;
use crate::value::{Float, Hash, Value};

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("new", new),
    ("convert_to", convert_to),
    ("assert_type", assert_type),
    ("unwrap", unwrap),
    ("any2array", any2array),
    ("str2bool", str2bool),
    ("type", type_name),
    ("is_array", |_, arguments| {
        is(arguments, |value| matches!(value, Value::Array(_)))
    }),
    ("is_hash", |_, arguments| {
        is(arguments, |value| matches!(value, Value::Hash(_)))
    }),
    ("is_string", |_, arguments| {
        is(arguments, |value| matches!(value, Value::String(_)))
    }),
    ("is_bool", |_, arguments| {
        is(arguments, |value| matches!(value, Value::Boolean(_)))
    }),
];

/// Parses a text as a number.
pub(crate) fn text_to_number(text: &str) -> Option<Value> {
    use crate::lexer::{TokenKind, number};
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits.trim_start()),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    Some(match (number(digits)?, negative) {
        (TokenKind::Integer(number), false) => Value::Integer(number),
        (TokenKind::Integer(number), true) => Value::Integer(-number),
        (TokenKind::Float(number), false) => Value::Float(Float(number)),
        (TokenKind::Float(number), true) => Value::Float(Float(-number)),
        _ => return None,
    })
}

fn is(mut arguments: Arguments<'_>, fits: fn(&Value) -> bool) -> EvalResult {
    let [value] = arguments.exactly()?;
    Ok(Value::Boolean(fits(&value)))
}

fn new(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(2)?;
    match &arguments.values[0] {
        Value::Type(of) => made(evaluator, &arguments, of, &arguments.values[1]),
        other => arguments.unfit(other),
    }
}

fn convert_to(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(2)?;
    match &arguments.values[1] {
        Value::Type(of) => made(evaluator, &arguments, of, &arguments.values[0]),
        other => arguments.unfit(other),
    }
}

fn made(
    evaluator: &mut Evaluator<'_>,
    arguments: &Arguments<'_>,
    of: &Type,
    value: &Value,
) -> EvalResult {
    let span = arguments.span;
    let refused = || error(format!("cannot convert {} to {of}", value.kind()), span);
    let made = match (of, value) {
        (Type::Integer(_) | Type::Numeric | Type::Float(..), Value::String(text)) => {
            let number = text_to_number(text);
            match (of, number) {
                (Type::Integer(_), Some(Value::Float(_))) | (_, None) => {
                    return error(format!("'{text}' is not a valid number of this kind"), span);
                }
                (_, Some(number)) => number,
            }
        }
        #[allow(clippy::cast_possible_truncation)]
        (Type::Integer(_), Value::Float(Float(number))) if number.abs() < 9e18 => {
            Value::Integer(*number as i64)
        }
        (Type::Integer(_), Value::Boolean(value)) => Value::Integer(i64::from(*value)),
        #[allow(clippy::cast_precision_loss)]
        (Type::Float(..), Value::Integer(number)) => Value::Float(Float(*number as f64)),
        (Type::Boolean(_), Value::Integer(number)) => Value::Boolean(*number != 0),
        (Type::Boolean(_), Value::String(text)) => match text.to_lowercase().as_str() {
            "true" | "yes" | "y" => Value::Boolean(true),
            "false" | "no" | "n" => Value::Boolean(false),
            _ => return refused(),
        },
        (Type::String(_), value) => {
            let mut text = String::new();
            evaluator.append(&mut text, value, span)?;
            evaluator.string(text, span)?
        }
        (Type::Sensitive(_), value) => {
            evaluator.shallow(Value::Sensitive(Box::new(value.clone())), span)?
        }
        (Type::Array(..), Value::Hash(table)) => pairs(evaluator, arguments, &table.entries)?,
        (Type::Array(..), value @ Value::Array(_)) => value.clone(),
        (Type::Array(..), value) => evaluator.array(vec![value.clone()], span)?,
        (Type::Hash(..), Value::Array(list)) => {
            let mut entries = Hash::new();
            for item in &list.items {
                match item {
                    Value::Array(pair) if pair.items.len() == 2 => {
                        entries.insert(pair.items[0].clone(), pair.items[1].clone());
                    }
                    _ => return error("a hash needs pairs", span),
                }
            }
            evaluator.hash(entries, span)?
        }
        (of, value) if of.accepts(value) => value.clone(),
        _ => return refused(),
    };
    if of.accepts(&made) {
        Ok(made)
    } else {
        error(format!("{of} does not take {}", made.kind()), span)
    }
}

fn pairs(evaluator: &mut Evaluator<'_>, arguments: &Arguments<'_>, entries: &Hash) -> EvalResult {
    let mut pairs = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        pairs.push(evaluator.array(vec![key.clone(), value.clone()], arguments.span)?);
    }
    evaluator.array(pairs, arguments.span)
}

fn assert_type(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [of, value] = arguments.exactly()?;
    let Value::Type(of) = of else {
        return arguments.unfit(&of);
    };
    match (of.accepts(&value), arguments.lambda) {
        (true, _) => Ok(value),
        (false, Some(lambda)) => {
            let found = Value::text(value.kind());
            evaluator.call_lambda(lambda, vec![Value::Type(of), found])
        }
        (false, None) => {
            let message = format!("expected {of}, not {}", value.kind());
            Err(Diagnostic::new(message, arguments.span).into())
        }
    }
}

/// Unwraps a secret, for the lambda if there is one. The secret stays secret outside of the lambda.
fn unwrap(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    match (arguments.exactly()?, arguments.lambda) {
        ([Value::Sensitive(inner)], Some(lambda)) => evaluator.call_lambda(lambda, vec![*inner]),
        ([Value::Sensitive(inner)], None) => Ok(*inner),
        ([value], _) => Ok(value),
    }
}

fn any2array(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    match arguments.values.as_slice() {
        [value @ Value::Array(_)] => Ok(value.clone()),
        [Value::Hash(table)] => {
            let flat = table
                .entries
                .iter()
                .flat_map(|(key, value)| [key.clone(), value.clone()]);
            let flat = flat.collect();
            evaluator.array(flat, arguments.span)
        }
        values => {
            let values = values.to_vec();
            evaluator.array(values, arguments.span)
        }
    }
}

fn str2bool(_: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    match &value {
        Value::Boolean(_) => Ok(value),
        Value::String(text) => match text.to_lowercase().as_str() {
            "true" | "yes" | "y" | "t" | "1" => Ok(Value::Boolean(true)),
            "false" | "no" | "n" | "f" | "0" | "" | "undef" | "undefined" => {
                Ok(Value::Boolean(false))
            }
            _ => error(format!("'{text}' is not a boolean"), arguments.span),
        },
        other => arguments.unfit(other),
    }
}

fn type_name(_: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    let name = value
        .kind()
        .trim_start_matches("an ")
        .trim_start_matches("a ");
    Ok(Value::text(name))
}
