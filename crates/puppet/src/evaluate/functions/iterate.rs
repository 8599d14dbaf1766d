//! Functions that call a lambda for each element.

use super::{Arguments, Function};
use crate::ast::Lambda;
use crate::evaluate::{EvalResult, Evaluator, Stop};
use crate::value::types::Type;
use crate::value::{Hash, Value};

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("each", each),
    ("map", map),
    ("filter", filter),
    ("reduce", reduce),
    ("any", any),
    ("all", all),
    ("with", with),
    ("then", then),
    ("lest", lest),
    ("slice", slice),
    ("reverse_each", reverse_each),
    ("step", step),
    ("index", index),
    ("group_by", group_by),
];

/// One element, in the form for a lambda with one parameter and for one with two.
struct Element {
    key: Value,
    value: Value,
    of_hash: bool,
}

impl Element {
    fn arguments(&self, evaluator: &mut Evaluator<'_>, lambda: &Lambda) -> EvalResult<Vec<Value>> {
        let pair = || vec![self.key.clone(), self.value.clone()];
        Ok(match (lambda.parameters.len(), self.of_hash) {
            (2.., _) => pair(),
            (_, true) => vec![evaluator.array(pair(), lambda.span)?],
            (_, false) => vec![self.value.clone()],
        })
    }
}

/// Returns the elements of an iterable value.
fn elements(
    evaluator: &mut Evaluator<'_>,
    arguments: &Arguments<'_>,
    value: &Value,
) -> EvalResult<Vec<Element>> {
    let numbered = |values: Vec<Value>| -> Vec<Element> {
        let index = |(index, value)| Element {
            key: Value::Integer(i64::try_from(index).unwrap_or(i64::MAX)),
            value,
            of_hash: false,
        };
        values.into_iter().enumerate().map(index).collect()
    };
    Ok(match value {
        Value::Array(list) => numbered(list.items.clone()),
        Value::Hash(table) => table
            .entries
            .iter()
            .map(|(key, value)| Element {
                key: key.clone(),
                value: value.clone(),
                of_hash: true,
            })
            .collect(),
        Value::Integer(count) => {
            numbered(integers(evaluator, arguments, 0, count.saturating_sub(1))?)
        }
        Value::String(text) => numbered(text.chars().map(|c| Value::text(c.to_string())).collect()),
        Value::Type(of) => match &**of {
            Type::Integer(bounds) => match (bounds.from, bounds.to) {
                (Some(from), Some(to)) => numbered(integers(evaluator, arguments, from, to)?),
                _ => return arguments.unfit(value),
            },
            Type::Enum(words) => numbered(words.iter().cloned().map(Value::String).collect()),
            _ => return arguments.unfit(value),
        },
        other => return arguments.unfit(other),
    })
}

fn integers(
    evaluator: &mut Evaluator<'_>,
    arguments: &Arguments<'_>,
    from: i64,
    to: i64,
) -> EvalResult<Vec<Value>> {
    let count = to.checked_sub(from).and_then(|count| count.checked_add(1));
    let count = usize::try_from(count.unwrap_or(i64::MAX)).unwrap_or(0);
    evaluator.sized(count, arguments.span)?;
    Ok((from..=to).map(Value::Integer).collect())
}

/// Calls the lambda for each element until `visit` ends the loop.
fn visit(
    evaluator: &mut Evaluator<'_>,
    arguments: &Arguments<'_>,
    elements: Vec<Element>,
    mut visit: impl FnMut(&mut Evaluator<'_>, Element, Value) -> EvalResult<bool>,
) -> EvalResult<()> {
    let lambda = arguments.needed_lambda()?;
    for element in elements {
        evaluator.work(1, arguments.span)?;
        let given = element.arguments(evaluator, lambda)?;
        match evaluator.call_lambda(lambda, given) {
            Ok(value) => {
                if !visit(evaluator, element, value)? {
                    break;
                }
            }
            Err(Stop::Break(_)) => break,
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn each(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    let elements = elements(evaluator, &arguments, &value)?;
    visit(evaluator, &arguments, elements, |_, _, _| Ok(true))?;
    Ok(value)
}

fn reverse_each(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    let mut elements = elements(evaluator, &arguments, &value)?;
    elements.reverse();
    if arguments.lambda.is_some() {
        visit(evaluator, &arguments, elements, |_, _, _| Ok(true))?;
        return Ok(value);
    }
    let values = elements.into_iter().map(|element| element.value).collect();
    evaluator.array(values, arguments.span)
}

fn step(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value, by] = arguments.exactly()?;
    let Value::Integer(by @ 1..) = by else {
        return arguments.unfit(&by);
    };
    let by = usize::try_from(by).unwrap_or(usize::MAX);
    let elements: Vec<Element> = elements(evaluator, &arguments, &value)?
        .into_iter()
        .step_by(by)
        .collect();
    if arguments.lambda.is_some() {
        visit(evaluator, &arguments, elements, |_, _, _| Ok(true))?;
        return Ok(value);
    }
    let values = elements.into_iter().map(|element| element.value).collect();
    evaluator.array(values, arguments.span)
}

fn map(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    let elements = elements(evaluator, &arguments, &value)?;
    let mut mapped = Vec::with_capacity(elements.len());
    visit(evaluator, &arguments, elements, |_, _, value| {
        mapped.push(value);
        Ok(true)
    })?;
    evaluator.array(mapped, arguments.span)
}

fn filter(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    let elements = elements(evaluator, &arguments, &value)?;
    let mut kept = Vec::new();
    visit(evaluator, &arguments, elements, |_, element, value| {
        if value.is_true() {
            kept.push(element);
        }
        Ok(true)
    })?;
    match value {
        Value::Hash(_) => {
            let entries: Hash = kept
                .into_iter()
                .map(|element| (element.key, element.value))
                .collect();
            evaluator.hash(entries, arguments.span)
        }
        _ => {
            let values = kept.into_iter().map(|element| element.value).collect();
            evaluator.array(values, arguments.span)
        }
    }
}

fn reduce(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(1)?;
    let lambda = arguments.needed_lambda()?;
    let pairs = elements(evaluator, &arguments, &arguments.values[0])?;
    let mut values = Vec::with_capacity(pairs.len());
    for element in pairs {
        values.push(if element.of_hash {
            evaluator.array(vec![element.key, element.value], arguments.span)?
        } else {
            element.value
        });
    }
    let mut values = values.into_iter();
    let mut memo = match arguments.values.get(1) {
        Some(start) => start.clone(),
        None => values.next().unwrap_or(Value::Undef),
    };
    for value in values {
        evaluator.work(1, arguments.span)?;
        match evaluator.call_lambda(lambda, vec![memo.clone(), value]) {
            Ok(next) => memo = next,
            Err(Stop::Break(_)) => break,
            Err(other) => return Err(other),
        }
    }
    Ok(memo)
}

fn any(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    found(evaluator, arguments, true)
}

fn all(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let found = found(evaluator, arguments, false)?;
    Ok(Value::Boolean(!found.is_true()))
}

/// Returns true if some element, or the result of the lambda for it, has the wanted truth value.
fn found(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>, wanted: bool) -> EvalResult {
    let [value] = arguments.exactly()?;
    let elements = elements(evaluator, &arguments, &value)?;
    let mut found = false;
    if arguments.lambda.is_some() {
        visit(evaluator, &arguments, elements, |_, _, value| {
            found = value.is_true() == wanted;
            Ok(!found)
        })?;
    } else {
        found = elements
            .iter()
            .any(|element| element.value.is_true() == wanted);
    }
    Ok(Value::Boolean(found))
}

fn with(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let lambda = arguments.needed_lambda()?;
    let values = std::mem::take(&mut arguments.values);
    evaluator.call_lambda(lambda, values)
}

fn then(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let lambda = arguments.needed_lambda()?;
    match arguments.exactly()? {
        [Value::Undef] => Ok(Value::Undef),
        [value] => evaluator.call_lambda(lambda, vec![value]),
    }
}

fn lest(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let lambda = arguments.needed_lambda()?;
    match arguments.exactly()? {
        [Value::Undef] => evaluator.call_lambda(lambda, Vec::new()),
        [value] => Ok(value),
    }
}

fn slice(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value, size] = arguments.exactly()?;
    let Value::Integer(size @ 1..) = size else {
        return arguments.unfit(&size);
    };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let all = elements(evaluator, &arguments, &value)?;
    for chunk in all.chunks(size) {
        let mut items = Vec::with_capacity(chunk.len());
        for element in chunk {
            items.push(if element.of_hash {
                evaluator.array(
                    vec![element.key.clone(), element.value.clone()],
                    arguments.span,
                )?
            } else {
                element.value.clone()
            });
        }
        parts.push(items);
    }
    let Some(lambda) = arguments.lambda else {
        let mut arrays = Vec::with_capacity(parts.len());
        for items in parts {
            arrays.push(evaluator.array(items, arguments.span)?);
        }
        return evaluator.array(arrays, arguments.span);
    };
    for items in parts {
        let given = match lambda.parameters.len() {
            1 => vec![evaluator.array(items, arguments.span)?],
            _ => items,
        };
        match evaluator.call_lambda(lambda, given) {
            Err(Stop::Break(_)) => break,
            outcome => outcome?,
        };
    }
    Ok(value)
}

fn index(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    if arguments.lambda.is_none() {
        let [value, wanted] = arguments.exactly()?;
        let all = elements(evaluator, &arguments, &value)?;
        let found = all
            .into_iter()
            .find(|element| crate::evaluate::equal(&element.value, &wanted));
        return Ok(found.map_or(Value::Undef, |element| element.key));
    }
    let [value] = arguments.exactly()?;
    let all = elements(evaluator, &arguments, &value)?;
    let mut found = Value::Undef;
    visit(evaluator, &arguments, all, |_, element, value| {
        if value.is_true() {
            found = element.key;
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok(found)
}

fn group_by(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [value] = arguments.exactly()?;
    let all = elements(evaluator, &arguments, &value)?;
    let mut groups: indexmap::IndexMap<Value, Vec<Value>> = indexmap::IndexMap::new();
    visit(evaluator, &arguments, all, |_, element, group| {
        groups.entry(group).or_default().push(element.value);
        Ok(true)
    })?;
    let mut entries = Hash::new();
    for (group, members) in groups {
        let members = evaluator.array(members, arguments.span)?;
        entries.insert(group, members);
    }
    evaluator.hash(entries, arguments.span)
}
