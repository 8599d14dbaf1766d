//! Strings.

use super::{Arguments, Function};
use crate::evaluate::{EvalResult, Evaluator, error};
use crate::pattern::regex;
use crate::value::Value;

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("join", join),
    ("split", split),
    ("regsubst", regsubst),
    ("match", match_groups),
    ("upcase", |evaluator, arguments| {
        each_text(evaluator, arguments, &|text| text.to_uppercase())
    }),
    ("downcase", |evaluator, arguments| {
        each_text(evaluator, arguments, &|text| text.to_lowercase())
    }),
    ("capitalize", |evaluator, arguments| {
        each_text(evaluator, arguments, &capitalize)
    }),
    ("strip", |evaluator, arguments| {
        each_text(evaluator, arguments, &|text| text.trim().to_owned())
    }),
    ("lstrip", |evaluator, arguments| {
        each_text(evaluator, arguments, &|text| text.trim_start().to_owned())
    }),
    ("rstrip", |evaluator, arguments| {
        each_text(evaluator, arguments, &|text| text.trim_end().to_owned())
    }),
    ("chomp", |evaluator, arguments| {
        each_text(evaluator, arguments, &chomp)
    }),
    ("chop", |evaluator, arguments| {
        each_text(evaluator, arguments, &chop)
    }),
    ("prefix", prefix),
    ("suffix", suffix),
    ("versioncmp", versioncmp),
    ("compare", versioncmp),
    ("stdlib::start_with", start_with),
    ("start_with", start_with),
    ("end_with", end_with),
];

fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first
            .to_uppercase()
            .chain(characters.flat_map(char::to_lowercase))
            .collect()
    })
}

fn chomp(text: &str) -> String {
    let kept = text.strip_suffix('\n').unwrap_or(text);
    kept.strip_suffix('\r').unwrap_or(kept).to_owned()
}

fn chop(text: &str) -> String {
    let mut characters = text.chars();
    characters.next_back();
    characters.as_str().to_owned()
}

/// Applies a change to one text, or to each text of an array.
fn each_text(
    evaluator: &mut Evaluator<'_>,
    mut arguments: Arguments<'_>,
    change: &dyn Fn(&str) -> String,
) -> EvalResult {
    let [value] = arguments.exactly()?;
    match &value {
        Value::String(text) => evaluator.string(change(text), arguments.span),
        Value::Integer(_) | Value::Float(_) => Ok(value),
        Value::Array(list) => {
            let mut changed = Vec::with_capacity(list.items.len());
            for item in &list.items {
                changed.push(match item {
                    Value::String(text) => evaluator.string(change(text), arguments.span)?,
                    other => other.clone(),
                });
            }
            evaluator.array(changed, arguments.span)
        }
        other => arguments.unfit(other),
    }
}

fn join(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(1)?;
    let separator = arguments.values.get(1).cloned().unwrap_or(Value::text(""));
    let mut text = String::new();
    let mut first = true;
    // Nested arrays are joined as if they were flat.
    let mut waiting = match &arguments.values[0] {
        Value::Array(list) => list.items.iter().rev().cloned().collect::<Vec<_>>(),
        other => vec![other.clone()],
    };
    while let Some(value) = waiting.pop() {
        if let Value::Array(list) = &value {
            waiting.extend(list.items.iter().rev().cloned());
            evaluator.work(1, arguments.span)?;
            continue;
        }
        if !std::mem::take(&mut first) {
            evaluator.append(&mut text, &separator, arguments.span)?;
        }
        evaluator.append(&mut text, &value, arguments.span)?;
    }
    evaluator.string(text, arguments.span)
}

/// Returns a pattern. A text is a regular expression, too.
fn pattern(arguments: &Arguments<'_>, value: &Value) -> EvalResult<regex::Regex> {
    let source = match value {
        Value::Regex(pattern) | Value::String(pattern) => pattern,
        other => return arguments.unfit(other),
    };
    regex(source).or_else(|_| error("invalid regular expression", arguments.span))
}

fn split(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [text, by] = arguments.exactly()?;
    let Value::String(text) = &text else {
        return arguments.unfit(&text);
    };
    let pattern = pattern(&arguments, &by)?;
    evaluator.work(text.len() / 64 + 1, arguments.span)?;
    let mut parts: Vec<Value> = if by.as_str() == Some("") || by == Value::Regex("".into()) {
        text.chars().map(|c| Value::text(c.to_string())).collect()
    } else {
        pattern.split(text).map(Value::text).collect()
    };
    // As in Ruby, empty parts at the end are dropped.
    while parts.last().is_some_and(|last| last.as_str() == Some("")) {
        parts.pop();
    }
    evaluator.array(parts, arguments.span)
}

fn regsubst(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(3)?;
    let flags = arguments
        .values
        .get(3)
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    let values = std::mem::take(&mut arguments.values);
    let by = match &values[1] {
        Value::String(source) if flags.contains('I') => Value::text(format!("(?i){source}")),
        other => other.clone(),
    };
    let pattern = pattern(&arguments, &by)?;
    let Some(replacement) = values[2].as_str() else {
        return arguments.unfit(&values[2]);
    };
    let replacement = rust_replacement(replacement);
    let limit = if flags.contains('G') { 0 } else { 1 };
    match &values[0] {
        Value::String(text) => {
            let changed = pattern
                .replacen(text, limit, replacement.as_str())
                .into_owned();
            evaluator.string(changed, arguments.span)
        }
        Value::Array(list) => {
            let mut changed = Vec::with_capacity(list.items.len());
            for item in &list.items {
                let Some(text) = item.as_str() else {
                    return arguments.unfit(item);
                };
                let text = pattern
                    .replacen(text, limit, replacement.as_str())
                    .into_owned();
                changed.push(evaluator.string(text, arguments.span)?);
            }
            evaluator.array(changed, arguments.span)
        }
        other => arguments.unfit(other),
    }
}

/// Converts Ruby's `\1` and `\0` to `${1}`.
fn rust_replacement(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                out.push_str(&format!("${{{digit}}}"));
                characters.next();
            }
            ('\\', Some('\\')) => {
                out.push('\\');
                characters.next();
            }
            ('$', _) => out.push_str("$$"),
            (other, _) => out.push(other),
        }
    }
    out
}

fn match_groups(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [text, by] = arguments.exactly()?;
    let Value::String(text) = &text else {
        return arguments.unfit(&text);
    };
    match pattern(&arguments, &by)?.captures(text) {
        None => Ok(Value::Undef),
        Some(found) => {
            let groups = found
                .iter()
                .map(|group| group.map_or(Value::Undef, |group| Value::text(group.as_str())));
            let groups = groups.collect();
            evaluator.array(groups, arguments.span)
        }
    }
}

fn prefix(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    affix(evaluator, arguments, |affix, text| format!("{affix}{text}"))
}

fn suffix(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    affix(evaluator, arguments, |affix, text| format!("{text}{affix}"))
}

fn affix(
    evaluator: &mut Evaluator<'_>,
    mut arguments: Arguments<'_>,
    join: fn(&str, &str) -> String,
) -> EvalResult {
    let [value, affix] = arguments.exactly()?;
    let (Value::Array(list), Some(affix)) = (&value, affix.as_str()) else {
        return arguments.unfit(&value);
    };
    let mut changed = Vec::with_capacity(list.items.len());
    for item in &list.items {
        let mut text = String::new();
        evaluator.append(&mut text, item, arguments.span)?;
        changed.push(evaluator.string(join(affix, &text), arguments.span)?);
    }
    evaluator.array(changed, arguments.span)
}

fn one_of(arguments: &mut Arguments<'_>, test: fn(&str, &str) -> bool) -> EvalResult {
    let [text, wanted] = arguments.exactly()?;
    let Some(text) = text.as_str() else {
        return arguments.unfit(&text);
    };
    let found = match &wanted {
        Value::Array(list) => list
            .items
            .iter()
            .filter_map(Value::as_str)
            .any(|wanted| test(text, wanted)),
        wanted => wanted.as_str().is_some_and(|wanted| test(text, wanted)),
    };
    Ok(Value::Boolean(found))
}

fn start_with(_: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    one_of(&mut arguments, |text, wanted| text.starts_with(wanted))
}

fn end_with(_: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    one_of(&mut arguments, |text, wanted| text.ends_with(wanted))
}

/// Returns -1, 0 or 1. Numbers in versions compare as numbers.
fn versioncmp(_: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [one, other] = arguments.exactly()?;
    let (Some(one), Some(other)) = (one.as_str(), other.as_str()) else {
        return arguments.unfit(&one);
    };
    let ordering = pieces(one).cmp(&pieces(other));
    Ok(Value::Integer(ordering as i64))
}

/// Splits a version. Numbers sort by value and before words.
fn pieces(version: &str) -> Vec<(u8, u64, String)> {
    let mut pieces = Vec::new();
    let mut rest = version;
    while let Some(first) = rest.chars().next() {
        let digit = first.is_ascii_digit();
        let end = rest
            .find(|c: char| c.is_ascii_digit() != digit || matches!(c, '.' | '-'))
            .filter(|end| *end > 0)
            .unwrap_or(if matches!(first, '.' | '-') {
                1
            } else {
                rest.len()
            });
        let piece = &rest[..end];
        pieces.push(match (digit, piece.parse()) {
            (true, Ok(number)) => (1, number, String::new()),
            _ => (if piece == "-" { 0 } else { 2 }, 0, piece.to_lowercase()),
        });
        rest = &rest[end..];
    }
    pieces
}
