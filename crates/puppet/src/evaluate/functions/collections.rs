//! Arrays and hashes.

use std::collections::HashSet;

use super::{Arguments, Function};
use crate::evaluate::{EvalResult, Evaluator, equal, error, order};
use crate::value::{Hash, Value};

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("range", range),
    ("size", size),
    ("length", size),
    ("count", count),
    ("empty", empty),
    ("keys", keys),
    ("values", values),
    ("merge", merge),
    ("has_key", has_key),
    ("flatten", flatten),
    ("unique", unique),
    ("sort", sort),
    ("reverse", reverse),
    ("concat", concat),
    ("delete", delete),
    ("delete_undef_values", delete_undef_values),
    ("member", member),
    ("dig", dig),
    ("get", get),
    ("pick", pick),
    ("pick_default", pick_default),
    ("zip", zip),
    ("intersection", intersection),
    ("difference", difference),
    ("union", union),
];

fn items(arguments: &Arguments<'_>, value: &Value) -> EvalResult<Vec<Value>> {
    match value {
        Value::Array(list) => Ok(list.items.clone()),
        other => arguments.unfit(other),
    }
}

/// `range(1, 3)`, `range('a', 'c')`, with or without a step.
fn range(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(2)?;
    let step = match arguments.values.get(2) {
        None => 1,
        Some(Value::Integer(step)) if *step != 0 => step.unsigned_abs(),
        Some(other) => return arguments.unfit(other),
    };
    let bound = |value: &Value| match value {
        Value::String(text) => super::text_to_number(text).unwrap_or_else(|| value.clone()),
        value => value.clone(),
    };
    match (bound(&arguments.values[0]), bound(&arguments.values[1])) {
        (Value::Integer(from), Value::Integer(to)) => {
            let count = usize::try_from(from.abs_diff(to) / step + 1).unwrap_or(usize::MAX);
            evaluator.sized(count, arguments.span)?;
            let step = i64::try_from(step).unwrap_or(i64::MAX);
            let step = if from <= to { step } else { -step };
            let numbers = (0..count).map(|at| {
                let offset = i64::try_from(at).unwrap_or(i64::MAX).saturating_mul(step);
                Value::Integer(from.saturating_add(offset))
            });
            evaluator.array(numbers.collect(), arguments.span)
        }
        (Value::String(from), Value::String(to)) => {
            letters(evaluator, &arguments, &from, &to, step)
        }
        (other, _) => arguments.unfit(&other),
    }
}

/// `range('a', 'e')` and `range('host01', 'host10')`.
fn letters(
    evaluator: &mut Evaluator<'_>,
    arguments: &Arguments<'_>,
    from: &str,
    to: &str,
    step: u64,
) -> EvalResult {
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    let split = |text: &str| -> (String, Option<(u32, usize)>) {
        let prefix = text.trim_end_matches(|last: char| last.is_ascii_digit());
        let digits = &text[prefix.len()..];
        (
            prefix.to_owned(),
            digits.parse().ok().map(|number| (number, digits.len())),
        )
    };
    if let ((one, Some((first, width))), (other, Some((last, _)))) = (split(from), split(to))
        && one == other
        && !one.is_empty()
    {
        evaluator.sized(last.saturating_sub(first) as usize, arguments.span)?;
        let names = (first..=last)
            .step_by(step)
            .map(|number| Value::text(format!("{one}{number:0width$}")));
        return evaluator.array(names.collect(), arguments.span);
    }
    let (mut one, mut other) = (from.chars(), to.chars());
    match (one.next(), other.next(), one.next(), other.next()) {
        (Some(first), Some(last), None, None) => {
            let letters = (first..=last)
                .step_by(step)
                .map(|letter| Value::text(letter.to_string()));
            evaluator.array(letters.collect(), arguments.span)
        }
        _ => error(
            "there is no range between these two strings",
            arguments.span,
        ),
    }
}

fn size(_: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    let length = match &value {
        Value::Array(list) => list.items.len(),
        Value::Hash(table) => table.entries.len(),
        Value::String(text) => text.chars().count(),
        other => return arguments.unfit(other),
    };
    Ok(Value::Integer(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn count(_: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(1)?;
    let items = items(&arguments, &arguments.values[0])?;
    let counted = match arguments.values.get(1) {
        Some(wanted) => items.iter().filter(|item| equal(item, wanted)).count(),
        None => items.iter().filter(|item| **item != Value::Undef).count(),
    };
    Ok(Value::Integer(i64::try_from(counted).unwrap_or(i64::MAX)))
}

fn empty(_: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    Ok(Value::Boolean(match &value {
        Value::Array(list) => list.items.is_empty(),
        Value::Hash(table) => table.entries.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Undef => true,
        _ => false,
    }))
}

fn keys(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    match arguments.exactly()? {
        [Value::Hash(table)] => {
            let keys = table.entries.keys().cloned().collect();
            evaluator.array(keys, arguments.span)
        }
        [other] => arguments.unfit(&other),
    }
}

fn values(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    match arguments.exactly()? {
        [Value::Hash(table)] => {
            let values = table.entries.values().cloned().collect();
            evaluator.array(values, arguments.span)
        }
        [other] => arguments.unfit(&other),
    }
}

fn merge(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let mut merged = Hash::new();
    for value in &arguments.values {
        match value {
            Value::Hash(table) => {
                merged.extend(
                    table
                        .entries
                        .iter()
                        .map(|(key, value)| (key.clone(), value.clone())),
                );
            }
            Value::Undef => {}
            other => return arguments.unfit(other),
        }
    }
    evaluator.hash(merged, arguments.span)
}

fn has_key(_: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    match arguments.exactly()? {
        [Value::Hash(table), key] => Ok(Value::Boolean(table.entries.contains_key(&key))),
        [other, _] => arguments.unfit(&other),
    }
}

fn flatten(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let mut flat = Vec::new();
    let mut waiting: Vec<Value> = arguments.values.iter().rev().cloned().collect();
    while let Some(value) = waiting.pop() {
        evaluator.work(1, arguments.span)?;
        match value {
            Value::Array(list) => waiting.extend(list.items.iter().rev().cloned()),
            other => flat.push(other),
        }
        evaluator.sized(flat.len().max(waiting.len()), arguments.span)?;
    }
    evaluator.array(flat, arguments.span)
}

fn unique(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    let mut seen = HashSet::new();
    let kept = items(&arguments, &value)?
        .into_iter()
        .filter(|item| seen.insert(item.clone()))
        .collect();
    evaluator.array(kept, arguments.span)
}

fn sort(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    let mut items = items(&arguments, &value)?;
    let first = items.first().cloned();
    if let Some(odd) = first.and_then(|first| {
        let mut others = items.iter();
        others.find(|item| order(&first, item).is_none()).cloned()
    }) {
        return arguments.unfit(&odd);
    }
    // All are numbers or all are texts: a total order.
    items.sort_by(|one, other| order(one, other).unwrap_or(std::cmp::Ordering::Equal));
    evaluator.array(items, arguments.span)
}

fn reverse(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    match arguments.exactly()? {
        [Value::String(text)] => evaluator.string(text.chars().rev().collect(), arguments.span),
        [value] => {
            let mut items = items(&arguments, &value)?;
            items.reverse();
            evaluator.array(items, arguments.span)
        }
    }
}

fn concat(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let mut all = Vec::new();
    for value in &arguments.values {
        match value {
            Value::Array(list) => all.extend(list.items.iter().cloned()),
            other => all.push(other.clone()),
        }
        evaluator.sized(all.len(), arguments.span)?;
    }
    evaluator.array(all, arguments.span)
}

fn delete(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value, gone] = arguments.exactly()?;
    let gone = match gone {
        Value::Array(list) => list.items.clone(),
        other => vec![other],
    };
    match value {
        Value::Array(list) => {
            let kept = list.items.iter().filter(|item| !gone.contains(item));
            let kept = kept.cloned().collect();
            evaluator.array(kept, arguments.span)
        }
        Value::Hash(table) => {
            let mut entries = table.entries.clone();
            entries.retain(|key, _| !gone.contains(key));
            evaluator.hash(entries, arguments.span)
        }
        Value::String(text) => {
            let mut text = text.to_string();
            for part in gone
                .iter()
                .filter_map(Value::as_str)
                .filter(|part| !part.is_empty())
            {
                text = text.replace(part, "");
            }
            evaluator.string(text, arguments.span)
        }
        other => arguments.unfit(&other),
    }
}

fn delete_undef_values(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    match arguments.exactly()? {
        [Value::Array(list)] => {
            let kept = list.items.iter().filter(|item| **item != Value::Undef);
            let kept = kept.cloned().collect();
            evaluator.array(kept, arguments.span)
        }
        [Value::Hash(table)] => {
            let mut entries = table.entries.clone();
            entries.retain(|_, value| *value != Value::Undef);
            evaluator.hash(entries, arguments.span)
        }
        [other] => arguments.unfit(&other),
    }
}

fn member(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [within, wanted] = arguments.exactly()?;
    let found = match &wanted {
        Value::Array(list) => {
            let mut all = true;
            for item in &list.items {
                all &= evaluator.contains(&within, item, arguments.span)?;
            }
            all
        }
        wanted => evaluator.contains(&within, wanted, arguments.span)?,
    };
    Ok(Value::Boolean(found))
}

/// Takes one step into a collection.
fn step_into(value: &Value, key: &Value) -> Value {
    match (value, key) {
        (Value::Hash(table), key) => table.entries.get(key).cloned().unwrap_or(Value::Undef),
        (Value::Array(list), Value::Integer(index)) => usize::try_from(*index)
            .ok()
            .and_then(|index| list.items.get(index).cloned())
            .unwrap_or(Value::Undef),
        _ => Value::Undef,
    }
}

fn dig(_: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(1)?;
    let mut value = arguments.values[0].clone();
    for key in &arguments.values[1..] {
        value = step_into(&value, key);
    }
    Ok(value)
}

/// `get($facts, 'os.family', 'none')`
fn get(_: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(1)?;
    let mut value = arguments.values[0].clone();
    let path = arguments
        .values
        .get(1)
        .and_then(Value::as_str)
        .unwrap_or("");
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let key = match part.parse() {
            Ok(index) => Value::Integer(index),
            Err(_) => Value::text(part),
        };
        value = step_into(&value, &key);
    }
    match (value, arguments.values.get(2)) {
        (Value::Undef, Some(default)) => Ok(default.clone()),
        (value, _) => Ok(value),
    }
}

fn picked(arguments: &Arguments<'_>) -> Option<Value> {
    let missing = |value: &Value| matches!(value, Value::Undef) || value.as_str() == Some("");
    arguments
        .values
        .iter()
        .find(|value| !missing(value))
        .cloned()
}

fn pick(_: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    picked(&arguments).map_or_else(|| error("`pick` found no value", arguments.span), Ok)
}

fn pick_default(_: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let last = arguments.values.last().cloned().unwrap_or(Value::Undef);
    Ok(picked(&arguments).unwrap_or(last))
}

fn zip(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [one, other] = arguments.exactly()?;
    let (one, other) = (items(&arguments, &one)?, items(&arguments, &other)?);
    let mut pairs = Vec::with_capacity(one.len());
    for (index, item) in one.into_iter().enumerate() {
        let partner = other.get(index).cloned().unwrap_or(Value::Undef);
        pairs.push(evaluator.array(vec![item, partner], arguments.span)?);
    }
    evaluator.array(pairs, arguments.span)
}

fn intersection(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [one, other] = arguments.exactly()?;
    let other: HashSet<Value> = items(&arguments, &other)?.into_iter().collect();
    let mut kept = items(&arguments, &one)?;
    kept.retain(|item| other.contains(item));
    evaluator.array(kept, arguments.span)
}

fn difference(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [one, other] = arguments.exactly()?;
    let other: HashSet<Value> = items(&arguments, &other)?.into_iter().collect();
    let mut kept = items(&arguments, &one)?;
    kept.retain(|item| !other.contains(item));
    evaluator.array(kept, arguments.span)
}

fn union(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for value in &arguments.values {
        for item in items(&arguments, value)? {
            if seen.insert(item.clone()) {
                all.push(item);
            }
        }
    }
    evaluator.array(all, arguments.span)
}
