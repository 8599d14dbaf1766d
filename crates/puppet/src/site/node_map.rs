//! `nodes => { Node['dev1'] => Lamp::Mysql['app1'] }`

use std::collections::HashMap;

use super::Part;
use crate::diagnostic::Diagnostic;
use crate::evaluate::{EvalResult, Evaluator, error};
use crate::reference::Reference;
use crate::source::Span;
use crate::value::Value;

impl Evaluator<'_> {
    pub(super) fn map_nodes(
        &mut self,
        application: &Reference,
        parts: &mut [Part],
        map: &Value,
        span: Span,
    ) -> EvalResult<()> {
        let Value::Hash(table) = map else {
            return error(
                format!(
                    "`nodes` takes a hash of nodes and components, not {}",
                    map.kind()
                ),
                span,
            );
        };
        let places: HashMap<Reference, usize> = parts
            .iter()
            .enumerate()
            .map(|(at, part)| (part.reference.clone(), at))
            .collect();
        for (node, components) in &table.entries {
            let node = node_name(node, span)?;
            let mut waiting = vec![components];
            while let Some(component) = waiting.pop() {
                match component {
                    Value::Reference(reference) => match places.get(&**reference) {
                        Some(at) => parts[*at].nodes.push((node.clone(), span)),
                        None => return Err(unknown(application, reference, parts, span).into()),
                    },
                    Value::Array(list) => waiting.extend(list.items.iter().rev()),
                    other => {
                        let message = format!(
                            "`nodes` maps `{node}` to {}, not to a component such as `Lamp::Mysql['x']`",
                            other.kind()
                        );
                        return error(message, span);
                    }
                }
            }
        }
        Ok(())
    }
}

fn node_name(key: &Value, span: Span) -> EvalResult<String> {
    match key {
        Value::Reference(reference) if reference.type_name == "Node" => Ok(reference.title.clone()),
        other => error(
            format!(
                "the keys of `nodes` must be nodes such as `Node['dev1']`, not {}",
                other.kind()
            ),
            span,
        ),
    }
}

fn unknown(application: &Reference, wanted: &Reference, parts: &[Part], span: Span) -> Diagnostic {
    let names: Vec<String> = parts
        .iter()
        .map(|part| part.reference.to_string())
        .collect();
    let message =
        format!("`nodes` refers to `{wanted}`, but `{application}` has no such component");
    Diagnostic::new(message, span).near(&wanted.to_string(), names.iter().map(String::as_str))
}
