//! What components pass to each other.
//!
//! `X produces Y { a => $b }` sets the capability's `a` from the parameter `b`
//! of the producer; `X consumes Y { c => $a }` sets the consumer's parameter
//! `c`. What the application says itself wins. Without a `consumes`, equal
//! names belong together.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use super::application::is_metaparameter;
use super::{Capability, Instance, Part};
use crate::ast::{Definition, MappingKind};
use crate::diagnostic::Diagnostic;
use crate::evaluate::{Evaluated, Evaluator, Role};
use crate::reference::Reference;
use crate::source::Span;
use crate::value::{Hash, Value};

type Values = IndexMap<String, Value>;

impl Evaluator<'_> {
    pub(super) fn fill_values(&mut self, instances: &mut [Instance]) -> Evaluated<()> {
        let mut known: HashMap<Reference, Values> = HashMap::new();
        for (at, part_at) in producers_first(instances) {
            let part = &mut instances[at].parts[part_at];
            self.fill(part, &mut known)?;
        }
        Ok(())
    }

    fn fill(&mut self, part: &mut Part, known: &mut HashMap<Reference, Values>) -> Evaluated<()> {
        let name = part.reference.type_name.clone();
        let definition = match self.definition(Role::Define, &name, part.span)? {
            Some(definition) => Some(definition),
            None => self.definition(Role::Class, &name, part.span)?,
        };
        let mut given = part.attributes.clone();
        for (capability, span) in &part.consumes {
            if let Some(values) = known.get(capability) {
                let brought =
                    self.brought(part, definition.as_deref(), capability, values, *span)?;
                for (name, value) in brought {
                    given.entry(name).or_insert((value, *span));
                }
            }
        }
        self.scopes.push(true);
        let outcome = self.in_scope_of(part, definition.as_ref(), &given, known);
        self.scopes.pop();
        outcome
    }

    /// Binds the parameters, then says what the component produces.
    fn in_scope_of(
        &mut self,
        part: &mut Part,
        definition: Option<&Arc<Definition>>,
        given: &IndexMap<String, (Value, Span)>,
        known: &mut HashMap<Reference, Values>,
    ) -> Evaluated<()> {
        self.node_variables(part)?;
        let what = part.reference.to_string();
        let title = part.reference.title.clone();
        part.parameters = match definition {
            Some(definition) => {
                self.bind_named(&definition.parameters, &title, given, part.span, &what)?
            }
            None => self.bind_unchecked(part, &title, given)?,
        };
        for (capability, span) in part.produces.clone() {
            let values = self.produced(part, &capability, span)?;
            known.insert(capability.clone(), values.clone());
            part.capabilities.push(Capability {
                reference: capability,
                values,
            });
        }
        Ok(())
    }

    /// A component whose definition was not given: its parameters are taken as they are.
    fn bind_unchecked(
        &mut self,
        part: &Part,
        title: &str,
        given: &IndexMap<String, (Value, Span)>,
    ) -> Evaluated<Values> {
        let message = format!(
            "`{}` is not defined in what was given",
            part.reference.type_name
        );
        self.note(Diagnostic::new(message, part.span).hint("its parameters are not checked"));
        for name in ["title", "name"] {
            self.declare(name, Value::text(title), part.span)?;
        }
        let mut bound = Values::new();
        let own = given
            .iter()
            .filter(|(name, _)| !is_metaparameter(name) && *name != "name" && *name != "title");
        for (name, (value, span)) in own {
            self.declare(name, value.clone(), *span)?;
            bound.insert(name.clone(), value.clone());
        }
        Ok(bound)
    }

    /// `$trusted` of the node that the component runs on, and its facts, if known.
    fn node_variables(&mut self, part: &Part) -> Evaluated<()> {
        let [(node, _)] = part.nodes.as_slice() else {
            return Ok(());
        };
        let mut trusted = Hash::new();
        trusted.insert(Value::text("certname"), Value::text(node));
        let trusted = self.hash(trusted, part.span)?;
        self.declare("trusted", trusted, part.span)?;
        let facts = self.hash(Hash::new(), part.span)?;
        self.declare("facts", facts, part.span)
    }

    /// What a capability brings to a component.
    fn brought(
        &mut self,
        part: &Part,
        definition: Option<&Definition>,
        capability: &Reference,
        values: &Values,
        span: Span,
    ) -> Evaluated<Values> {
        let component = &part.reference.type_name;
        let mapping = self.mapping(
            MappingKind::Consumes,
            component,
            &capability.type_name,
            span,
        )?;
        let Some(mapping) = mapping else {
            let takes = |name: &str| {
                definition.is_none_or(|definition| {
                    definition.parameters.iter().any(|one| one.name == name)
                })
            };
            let matching = values.iter().filter(|(name, _)| takes(name));
            return Ok(matching
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect());
        };
        self.scopes.push(true);
        let outcome = self.mapped(&mapping.attributes, capability, values, span);
        self.scopes.pop();
        outcome
    }

    fn mapped(
        &mut self,
        attributes: &[crate::ast::Attribute],
        capability: &Reference,
        values: &Values,
        span: Span,
    ) -> Evaluated<Values> {
        for (name, value) in values {
            self.declare(name, value.clone(), span)?;
        }
        for name in ["title", "name"] {
            // The capability may have an attribute of that name itself.
            self.scopes.set(name, Value::text(&capability.title));
        }
        let set = self.attributes(attributes)?;
        Ok(set
            .into_iter()
            .map(|(name, (value, _))| (name, value))
            .collect())
    }

    /// What a component says with a capability; its parameters are in scope.
    fn produced(&mut self, part: &Part, capability: &Reference, span: Span) -> Evaluated<Values> {
        let component = &part.reference.type_name;
        let mapping = self.mapping(
            MappingKind::Produces,
            component,
            &capability.type_name,
            span,
        )?;
        let Some(mapping) = mapping else {
            let message = format!(
                "how `{component}` produces `{}` is not said: those that consume `{capability}` get no values",
                capability.type_name
            );
            let hint = format!(
                "add `{component} produces {} {{ … }}`",
                capability.type_name
            );
            self.note(Diagnostic::new(message, span).hint(hint));
            return Ok(Values::new());
        };
        let set = self.attributes(&mapping.attributes)?;
        Ok(set
            .into_iter()
            .map(|(name, (value, _))| (name, value))
            .collect())
    }
}

/// Components in an order in which producers come first. Those on a cycle come
/// last: the plan refuses them.
fn producers_first(instances: &[Instance]) -> Vec<(usize, usize)> {
    let all: Vec<(usize, usize)> = instances
        .iter()
        .enumerate()
        .flat_map(|(at, instance)| (0..instance.parts.len()).map(move |part| (at, part)))
        .collect();
    let part = |index: usize| &instances[all[index].0].parts[all[index].1];
    let mut producer: HashMap<&Reference, usize> = HashMap::new();
    for index in 0..all.len() {
        for (capability, _) in &part(index).produces {
            producer.entry(capability).or_insert(index);
        }
    }
    let mut consumers: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    let mut missing = vec![0usize; all.len()];
    for (index, missing) in missing.iter_mut().enumerate() {
        for (capability, _) in &part(index).consumes {
            if let Some(from) = producer.get(capability).filter(|from| **from != index) {
                consumers[*from].push(index);
                *missing += 1;
            }
        }
    }
    let mut ready: std::collections::VecDeque<usize> = (0..all.len())
        .filter(|index| missing[*index] == 0)
        .collect();
    let mut order = Vec::with_capacity(all.len());
    while let Some(index) = ready.pop_front() {
        order.push(all[index]);
        for consumer in &consumers[index] {
            missing[*consumer] -= 1;
            if missing[*consumer] == 0 {
                ready.push_back(*consumer);
            }
        }
    }
    let on_cycles = (0..all.len()).filter(|index| missing[*index] > 0);
    order.extend(on_cycles.map(|index| all[index]));
    order
}
