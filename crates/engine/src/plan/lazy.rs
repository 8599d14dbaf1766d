//! Outputs as variables: `${ NAME.stdout }` in a later state's parameters,
//! `${ node("db1").NAME.stdout }` of another node, and `${ label("severity", "none") }` of the
//! alert that started the run.
//!
//! A label is text from outside, so it is never put into a command line: commands read it from
//! their environment.
//!
//! For this node, only registered names count, so a shell's own `${HOME}` is left as it
//! is. A use implies the order. A parameter that reads a secret output is a secret
//! itself: it is marked, and every text of the output is hidden everywhere.

use std::collections::{HashMap, HashSet};

use bunraku_model::Catalog;
use serde_json::{Map, Value};

use super::{Body, CatalogPlan, Edge, EdgeKind};
use crate::{Declaration, OtherNodeOutputs, StepError};

/// Returns the names that a catalog registers.
pub(super) fn registered_names(catalog: &Catalog) -> HashSet<&str> {
    (catalog.resources.iter())
        .filter_map(|resource| resource.parameters.get("register")?.as_str())
        .collect()
}

/// Returns true if a declaration uses a registered name, or one of another node.
pub(super) fn waits(declaration: &Declaration, registered: &HashSet<&str>) -> bool {
    (declaration.parameters().values()).any(|value| {
        let used = |expression: &&str| is_read(expression) || registered.contains(root(expression));
        uses(value).iter().any(used)
    })
}

/// Returns the parameters of a step that read a secret output.
pub(super) fn secret_parameters(body: &Body, secret: &HashSet<String>) -> Vec<String> {
    let Body::Lazy(declaration) = body else {
        return Vec::new();
    };
    let reads = |value: &Value| uses(value).iter().any(|used| secret.contains(root(used)));
    (declaration.parameters().iter())
        .filter(|(_, value)| reads(value))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Returns the edges from each step that registers an output to the steps that use it.
pub(super) fn edges(plan: &CatalogPlan) -> Vec<Edge> {
    let registers: HashMap<&str, u32> = (plan.steps.iter().enumerate())
        .filter_map(|(index, step)| Some((step.control.register.as_deref()?, index as u32)))
        .collect();
    let mut edges = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let Body::Lazy(declaration) = &step.body else {
            continue;
        };
        let used: HashSet<&str> = (declaration.parameters().values())
            .flat_map(uses)
            .filter(|expression| !is_read(expression))
            .map(root)
            .collect();
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

/// Returns the text of all `${ … }` inside a value.
fn uses(value: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => {
                found.extend(expressions(text).map(|(_, expression)| expression));
            }
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    found
}

/// Returns each `${ … }` as its whole range and the text inside.
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

/// Splits `node("db1").token.stdout` into the node and `token.stdout`.
fn read_of_node(expression: &str) -> Option<(&str, &str)> {
    let rest = expression.strip_prefix("node(")?.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (node, rest) = rest[1..].split_once(quote)?;
    let path = rest.trim_start().strip_prefix(')')?.strip_prefix('.')?;
    (!node.is_empty() && !root(path).is_empty()).then_some((node, path))
}

/// Splits `label("severity", "none")` into the name and the default.
fn read_of_label(expression: &str) -> Option<(&str, Option<&str>)> {
    let (name, rest) = quoted(expression.strip_prefix("label(")?)?;
    let rest = rest.trim_start();
    if rest == ")" {
        return Some((name, None));
    }
    let (default, rest) = quoted(rest.strip_prefix(',')?)?;
    (rest.trim_start() == ")").then_some((name, Some(default)))
}

/// Splits a quoted text and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    text[1..].split_once(quote)
}

/// Returns whether an expression reads something other than an output of this node.
fn is_read(expression: &str) -> bool {
    read_of_node(expression).is_some() || read_of_label(expression).is_some()
}

/// The parameters of `exec` that a shell may interpret.
const COMMAND_LINES: [&str; 5] = ["command", "unless", "onlyif", "refresh", "name"];

/// The outputs that a run knows.
pub(crate) struct KnownOutputs<'a> {
    /// Every registered name of this node whose step ran.
    pub(crate) here: &'a HashMap<String, Map<String, Value>>,
    pub(crate) registered: &'a HashSet<String>,
    /// The names whose outputs are secrets.
    pub(crate) secret: &'a HashSet<String>,
    pub(crate) other_nodes: &'a OtherNodeOutputs,
    /// The labels of the alert or call that started the run.
    pub(crate) labels: &'a Map<String, Value>,
}

impl KnownOutputs<'_> {
    /// Replaces the expressions with the outputs.
    pub(crate) fn resolve(
        &self,
        declaration: &Declaration<'static>,
    ) -> Result<Declaration<'static>, StepError> {
        let mut declaration = declaration.clone();
        let is_exec = declaration
            .reference()
            .type_name()
            .eq_ignore_ascii_case("exec");
        let mut secret = Vec::new();
        for (name, value) in declaration.parameters_mut() {
            let mut labels = uses(value).into_iter().filter_map(read_of_label);
            if is_exec
                && COMMAND_LINES.contains(&name.as_str())
                && let Some((label, _)) = labels.next()
            {
                return Err(StepError::new(format!(
                    "a label must not be part of a command: use \"$BUNRAKU_LABEL_{}\" in it",
                    label.to_ascii_uppercase()
                )));
            }
            if uses(value)
                .iter()
                .any(|used| self.secret.contains(root(used)))
            {
                secret.push(name.clone());
            }
            self.put_in(value)?;
        }
        declaration.hide(secret);
        Ok(declaration)
    }

    fn put_in(&self, value: &mut Value) -> Result<(), StepError> {
        match value {
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.put_in(item)),
            Value::Object(members) => {
                (members.values_mut()).try_for_each(|member| self.put_in(member))
            }
            Value::String(text) => {
                let ours = |expression: &str| {
                    is_read(expression) || self.registered.contains(root(expression))
                };
                let found: Vec<_> = (expressions(text))
                    .filter(|(_, expression)| ours(expression))
                    .map(|(range, expression)| (range, expression.to_owned()))
                    .collect();
                // The whole text is one expression: keep the value's own type.
                if let [(range, expression)] = found.as_slice()
                    && range.len() == text.len()
                {
                    *value = self.look_up(expression)?;
                    return Ok(());
                }
                for (range, expression) in found.into_iter().rev() {
                    let output = match self.look_up(&expression)? {
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

    fn look_up(&self, expression: &str) -> Result<Value, StepError> {
        if let Some((name, default)) = read_of_label(expression) {
            let given = self.labels.get(name).cloned();
            let given = given.or_else(|| default.map(|default| default.into()));
            return given.ok_or_else(|| {
                StepError::unknown_outputs(format!(
                    "this run has no label `{name}`: it was not started by an alert with it"
                ))
            });
        }
        let (outputs, path) = match read_of_node(expression) {
            Some((node, path)) => {
                let given = self.other_nodes.get(node, root(path));
                (given.map_err(StepError::unknown_outputs)?, path)
            }
            None => {
                let name = root(expression);
                let outputs = self.here.get(name).ok_or_else(|| {
                    let why = format!("`{name}` has no outputs: it failed or did not run");
                    StepError::unknown_outputs(why)
                })?;
                (outputs, expression)
            }
        };
        let mut parts = path.split('.').skip(1).peekable();
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
            current = Some(next.ok_or_else(|| missing(expression, root(path), outputs))?);
        }
        Ok(current.cloned().unwrap_or(Value::Null))
    }
}

fn missing(expression: &str, name: &str, outputs: &Map<String, Value>) -> StepError {
    let has: Vec<&str> = outputs.keys().map(String::as_str).collect();
    StepError::unknown_outputs(format!(
        "`{name}` has no `{expression}`, only {}",
        has.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_name_and_perhaps_a_default() {
        let read = |text| read_of_label(text);
        assert_eq!(read("label(\"severity\")"), Some(("severity", None)));
        assert_eq!(read("label( 'a' , 'b c' )"), Some(("a", Some("b c"))));
        for text in [
            "label",
            "label()",
            "label(a)",
            "label('a'",
            "label('a').b",
            "label('a' 'b')",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_read_of_another_node_is_distinguished_from_a_use_of_a_name() {
        let read = |text| read_of_node(text);
        assert_eq!(
            read("node(\"db1\").token.stdout"),
            Some(("db1", "token.stdout"))
        );
        assert_eq!(
            read("node( 'db1.example.com' ).t"),
            Some(("db1.example.com", "t"))
        );
        for text in [
            "node.stdout",
            "node(db1).x",
            "node(\"\").x",
            "node(\"a\")",
            "node(\"a\").",
            "node(\"a",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
