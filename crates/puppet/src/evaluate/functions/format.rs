//! `sprintf`.

use super::{Arguments, Function};
use crate::evaluate::{EvalResult, Evaluator, error};
use crate::value::{Float, Value};

pub(super) const FUNCTIONS: &[(&str, Function)] = &[("sprintf", sprintf)];

/// The maximum field width and number of digits in a format.
const WIDEST: usize = 4_096;

#[derive(Default)]
struct Field {
    zero: bool,
    left: bool,
    plus: bool,
    width: usize,
    digits: Option<usize>,
}

fn sprintf(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(1)?;
    let Some(format) = arguments.values[0].as_str() else {
        return arguments.unfit(&arguments.values[0]);
    };
    let mut values = arguments.values[1..].iter();
    let mut out = String::new();
    let mut characters = format.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        if characters.peek() == Some(&'%') {
            characters.next();
            out.push('%');
            continue;
        }
        let field = field(&mut characters, &arguments)?;
        let Some(conversion) = characters.next() else {
            return error("the format ends after `%`", arguments.span);
        };
        let Some(value) = values.next() else {
            return error(
                "the format needs more values than there are",
                arguments.span,
            );
        };
        let text = converted(conversion, value, &field, &arguments)?;
        out.push_str(&padded(&text, &field));
    }
    evaluator.string(out, arguments.span)
}

fn field(
    characters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    arguments: &Arguments<'_>,
) -> EvalResult<Field> {
    let mut field = Field::default();
    while let Some(flag) = characters.peek() {
        match flag {
            '0' => field.zero = true,
            '-' => field.left = true,
            '+' => field.plus = true,
            ' ' | '#' => {}
            _ => break,
        }
        characters.next();
    }
    field.width = digits(characters).unwrap_or(0);
    if characters.peek() == Some(&'.') {
        characters.next();
        field.digits = Some(digits(characters).unwrap_or(0));
    }
    if field.width > WIDEST || field.digits.is_some_and(|digits| digits > WIDEST) {
        error("the field width in the format is too large", arguments.span)
    } else {
        Ok(field)
    }
}

fn digits(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<usize> {
    let mut number: Option<usize> = None;
    while let Some(digit) = characters.peek().and_then(|c| c.to_digit(10)) {
        let so_far = number.unwrap_or(0).saturating_mul(10);
        number = Some(so_far.saturating_add(digit as usize));
        characters.next();
    }
    number
}

fn converted(
    conversion: char,
    value: &Value,
    field: &Field,
    arguments: &Arguments<'_>,
) -> EvalResult<String> {
    let number = match value {
        Value::String(text) => super::text_to_number(text),
        other => Some(other.clone()),
    };
    let plus = if field.plus { "+" } else { "" };
    Ok(match (conversion, &number) {
        ('s' | 'p', _) => {
            let mut text = String::new();
            if !value.write_bounded(&mut text, 1 << 20) {
                return error("a string is too long", arguments.span);
            }
            match field.digits {
                Some(most) => text.chars().take(most).collect(),
                None => text,
            }
        }
        ('d' | 'i' | 'u', Some(Value::Integer(number))) if *number >= 0 => {
            format!("{plus}{number}")
        }
        ('d' | 'i' | 'u', Some(Value::Integer(number))) => number.to_string(),
        ('d' | 'i' | 'u', Some(Value::Float(Float(number)))) => format!("{:.0}", number.trunc()),
        ('x', Some(Value::Integer(number))) => format!("{number:x}"),
        ('X', Some(Value::Integer(number))) => format!("{number:X}"),
        ('o', Some(Value::Integer(number))) => format!("{number:o}"),
        ('b', Some(Value::Integer(number))) => format!("{number:b}"),
        #[allow(clippy::cast_precision_loss)]
        ('f', Some(Value::Integer(number))) => {
            format!("{:.*}", field.digits.unwrap_or(6), *number as f64)
        }
        ('f', Some(Value::Float(Float(number)))) => {
            format!("{number:.*}", field.digits.unwrap_or(6))
        }
        ('e', Some(Value::Float(Float(number)))) => format!("{number:e}"),
        _ => {
            let message = format!("`%{conversion}` does not take {}", value.kind());
            return error(message, arguments.span);
        }
    })
}

fn padded(text: &str, field: &Field) -> String {
    let missing = field.width.saturating_sub(text.chars().count());
    match (field.left, field.zero) {
        (true, _) => format!("{text}{}", " ".repeat(missing)),
        (false, true) => {
            let (sign, digits) = match text.strip_prefix('-') {
                Some(digits) => ("-", digits),
                None => ("", text),
            };
            format!("{sign}{}{digits}", "0".repeat(missing))
        }
        (false, false) => format!("{}{text}", " ".repeat(missing)),
    }
}
