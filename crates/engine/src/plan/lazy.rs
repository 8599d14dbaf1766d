//! Outputs as variables: `${ NAME.stdout }` in a later state's parameters.
//!
//! Only names that some state registers count, so a shell's own `${HOME}`
//! stays what it is. A use implies the order. A secret that a command printed
//! is not hidden by this: mark the output's source as sensitive.

use std::collections::{HashMap, HashSet};

use bunraku_model::Catalog;
use serde_json::{Map, Value};

use super::{Body, Edge, EdgeKind, Plan};
use crate::{Declaration, StepError};

/// The names that a catalog registers.
pub(super) fn registered_names(catalog: &Catalog) -> HashSet<&str> {
    (catalog.resources.iter())
        .filter_map(|resource| resource.parameters.get("register")?.as_str())
        .collect()
}

/// Whether a declaration uses a registered name.
pub(super) fn waits(declaration: &Declaration, registered: &HashSet<&str>) -> bool {
    !registered.is_empty()
        && (declaration.parameters().values())
            .any(|value| uses(value).iter().any(|name| registered.contains(name)))
}

/// Whoever uses an output comes after whoever registers it.
pub(super) fn edges(plan: &Plan) -> Vec<Edge> {
    let registers: HashMap<&str, u32> = (plan.steps.iter().enumerate())
        .filter_map(|(index, step)| Some((step.control.register.as_deref()?, index as u32)))
        .collect();
    let mut edges = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let Body::Lazy(declaration) = &step.body else {
            continue;
        };
        let used: HashSet<&str> = declaration.parameters().values().flat_map(uses).collect();
        let sources = used.iter().filter_map(|name| registers.get(name));
        edges.extend(
            sources
                .filter(|source| **source != index as u32)
                .map(|source| {
                    Edge::new(
                        *source,
                        index as u32,
                        EdgeKind::Require,
                        "its use of the output",
                    )
                }),
        );
    }
    edges
}

/// The names in all `${ NAME… }` inside a value.
fn uses(value: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => {
                found.extend(expressions(text).map(|(_, expression)| root(expression)))
            }
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    found
}

/// Each `${ … }` as its whole range and the text inside.
fn expressions(text: &str) -> impl Iterator<Item = (std::ops::Range<usize>, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text[from..].find("${")?;
        let length = text[start..].find('}')?;
        from = start + length + 1;
        Some((start..from, text[start + 2..from - 1].trim()))
    })
}

fn root(expression: &str) -> &str {
    let end = expression.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-'));
    &expression[..end.unwrap_or(expression.len())]
}

/// Puts the outputs in. `known` has every registered name that was run.
pub(crate) fn resolve_outputs(
    declaration: &Declaration<'static>,
    known: &HashMap<String, Map<String, Value>>,
    registered: impl Fn(&str) -> bool,
) -> Result<Declaration<'static>, StepError> {
    let mut declaration = declaration.clone();
    for value in declaration.parameters_mut().values_mut() {
        put_in(value, known, &registered)?;
    }
    Ok(declaration)
}

fn put_in(
    value: &mut Value,
    known: &HashMap<String, Map<String, Value>>,
    registered: &impl Fn(&str) -> bool,
) -> Result<(), StepError> {
    match value {
        Value::Array(items) => items
            .iter_mut()
            .try_for_each(|item| put_in(item, known, registered)),
        Value::Object(members) => members
            .values_mut()
            .try_for_each(|member| put_in(member, known, registered)),
        Value::String(text) => {
            let found: Vec<_> = (expressions(text))
                .filter(|(_, expression)| registered(root(expression)))
                .map(|(range, expression)| (range, expression.to_owned()))
                .collect();
            // The whole text is one expression: keep the value's own type.
            if let [(range, expression)] = found.as_slice()
                && range.len() == text.len()
            {
                *value = look_up(expression, known)?;
                return Ok(());
            }
            for (range, expression) in found.into_iter().rev() {
                let output = match look_up(&expression, known)? {
                    Value::String(output) => output,
                    other => other.to_string(),
                };
                text.replace_range(range, &output);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn look_up(
    expression: &str,
    known: &HashMap<String, Map<String, Value>>,
) -> Result<Value, StepError> {
    let mut parts = expression.split('.');
    let name = parts.next().unwrap_or_default();
    let outputs = known.get(name).ok_or_else(|| {
        StepError::new(format!("`{name}` has no outputs: it failed or did not run"))
    })?;
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return Ok(Value::Object(outputs.clone()));
    }
    let mut current: Option<&Value> = None;
    for part in parts {
        let next = match current {
            None => outputs.get(part),
            Some(Value::Object(members)) => members.get(part),
            Some(Value::Array(items)) => part
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get(index)),
            Some(_) => None,
        };
        current = Some(next.ok_or_else(|| missing(expression, name, outputs))?);
    }
    Ok(current.cloned().unwrap_or(Value::Null))
}

fn missing(expression: &str, name: &str, outputs: &Map<String, Value>) -> StepError {
    let has: Vec<&str> = outputs.keys().map(String::as_str).collect();
    StepError::new(format!(
        "there is no `{expression}`: `{name}` has {}",
        has.join(", ")
    ))
}
