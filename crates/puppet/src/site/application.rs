//! One application: its parameters, its body, its components.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::order::Order;
use super::{Instance, Part, declared_once};
use crate::ast::{Definition, Parameter};
use crate::diagnostic::Diagnostic;
use crate::evaluate::{DeclaredResource, EvalResult, Evaluator, references_in};
use crate::reference::Reference;
use crate::source::Span;
use crate::value::Value;

/// The attributes that every resource accepts besides its own parameters.
const METAPARAMETERS: &[&str] = &[
    "alias",
    "audit",
    "before",
    "loglevel",
    "noop",
    "notify",
    "require",
    "schedule",
    "stage",
    "subscribe",
    "tag",
];

pub(super) fn is_metaparameter(name: &str) -> bool {
    METAPARAMETERS.contains(&name)
}

impl Evaluator<'_> {
    pub(super) fn instance(
        &mut self,
        definition: &Definition,
        mut declared: DeclaredResource,
        seen: &mut HashMap<Reference, Span>,
    ) -> EvalResult<Instance> {
        let nodes = declared.attributes.shift_remove("nodes");
        let order = Order::of(&mut declared.attributes)?;
        let what = declared.reference.to_string();
        let outer = std::mem::take(&mut self.declared);
        self.scopes.push(true);
        let title = declared.reference.title.clone();
        if let Some((map, span)) = &nodes {
            self.declare("nodes", map.clone(), *span)?;
        }
        let outcome = self
            .bind_named(
                &definition.parameters,
                &title,
                &declared.attributes,
                declared.span,
                &what,
            )
            .and_then(|_| self.all(&definition.body));
        self.scopes.pop();
        let components = std::mem::replace(&mut self.declared, outer);
        outcome?;
        let mut parts = Vec::with_capacity(components.len());
        for component in components {
            declared_once(seen, &component)?;
            parts.push(part(component)?);
        }
        if let Some((map, span)) = nodes {
            self.map_nodes(&declared.reference, &mut parts, &map, span)?;
        }
        Ok(Instance {
            reference: declared.reference,
            span: declared.span,
            order,
            parts,
        })
    }

    /// Binds parameters by name in the current scope: given values first, then defaults, which may
    /// use earlier parameters.
    pub(super) fn bind_named(
        &mut self,
        parameters: &[Parameter],
        title: &str,
        given: &IndexMap<String, (Value, Span)>,
        span: Span,
        what: &str,
    ) -> EvalResult<IndexMap<String, Value>> {
        self.refuse_unknown(parameters, given, what)?;
        for name in ["title", "name"] {
            self.declare(name, Value::text(title), span)?;
        }
        let mut bound = IndexMap::with_capacity(parameters.len());
        for parameter in parameters.iter().filter(|one| !is_title(&one.name)) {
            let (value, place) = match (given.get(&parameter.name), &parameter.default) {
                (Some((value, place)), _) => (value.clone(), *place),
                (None, Some(default)) => (self.value(default)?, span),
                (None, None) if self.is_optional(parameter)? => (Value::Undef, span),
                (None, None) => {
                    // Facts cannot change this.
                    self.lenient = false;
                    let message = format!("`{what}` needs a value for `{}`", parameter.name);
                    return Err(Diagnostic::new(message, span)
                        .also(parameter.span, "it has no default")
                        .into());
                }
            };
            self.check_type(parameter, &value, place, &format!("`{what}`"))?;
            self.declare(&parameter.name, value.clone(), parameter.span)?;
            bound.insert(parameter.name.clone(), value);
        }
        Ok(bound)
    }

    fn is_optional(&mut self, parameter: &Parameter) -> EvalResult<bool> {
        match &parameter.type_expression {
            Some(declared) => Ok(matches!(
                self.type_of(declared)?,
                crate::value::types::Type::Optional(_)
            )),
            None => Ok(false),
        }
    }

    fn refuse_unknown(
        &mut self,
        parameters: &[Parameter],
        given: &IndexMap<String, (Value, Span)>,
        what: &str,
    ) -> EvalResult<()> {
        let known: std::collections::HashSet<&str> =
            parameters.iter().map(|one| one.name.as_str()).collect();
        let unknown = given
            .iter()
            .find(|(name, _)| !known.contains(name.as_str()) && !is_metaparameter(name));
        match unknown {
            None => Ok(()),
            Some((name, (_, span))) => {
                self.lenient = false;
                let message = format!("`{what}` has no parameter `{name}`");
                Err(Diagnostic::new(message, *span)
                    .near(name, known.iter().copied())
                    .into())
            }
        }
    }
}

fn is_title(name: &str) -> bool {
    matches!(name, "title" | "name")
}

fn part(mut component: DeclaredResource) -> EvalResult<Part> {
    let produces = take_references(&mut component.attributes, "export")?;
    let consumes = take_references(&mut component.attributes, "consume")?;
    let order = Order::of(&mut component.attributes)?;
    Ok(Part {
        reference: component.reference,
        span: component.span,
        attributes: component.attributes,
        nodes: Vec::new(),
        produces,
        consumes,
        order,
        requires: Vec::new(),
        waits_for: Vec::new(),
        parameters: IndexMap::new(),
        capabilities: Vec::new(),
    })
}

/// Removes the references from an attribute. Returns each with its location.
pub(super) fn take_references(
    attributes: &mut IndexMap<String, (Value, Span)>,
    name: &str,
) -> EvalResult<Vec<(Reference, Span)>> {
    let Some((value, span)) = attributes.shift_remove(name) else {
        return Ok(Vec::new());
    };
    let references = references_in(&value, &format!("`{name}`"), span)?;
    Ok(references.into_iter().map(|one| (one, span)).collect())
}
