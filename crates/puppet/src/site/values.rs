//! The values that components pass to each other.
//!
//! `X produces Y { a => $b }` sets the capability's `a` from the parameter `b` of the producer;
//! `X consumes Y { c => $a }` sets the consumer's parameter `c`. Equal names match without a
//! mapping. A value that the application sets itself wins.
//!
//! Nothing here changes the order. So a value that cannot be evaluated, because it needs facts or
//! an unknown function, is left out with a note.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;

use super::application::is_metaparameter;
use super::{Capability, Instance, Part};
use crate::ast::{Definition, MappingKind};
use crate::diagnostic::Diagnostic;
use crate::evaluate::{EvalResult, Evaluator, Role, Stop};
use crate::reference::{Reference, lower};
use crate::source::Span;
use crate::value::Value;

type Values = IndexMap<String, Value>;

/// The values that capabilities carry, as far as they are known.
#[derive(Default)]
struct CapabilityValues {
    values: HashMap<Reference, Values>,
    /// Capabilities with values that depend on unknown data.
    partial: HashSet<Reference>,
}

impl CapabilityValues {
    /// Returns true if all values of the capability are known.
    fn is_whole(&self, capability: &Reference) -> bool {
        self.values.contains_key(capability) && !self.partial.contains(capability)
    }
}

impl Evaluator<'_> {
    pub(super) fn fill_values(&mut self, instances: &mut [Instance]) -> EvalResult<()> {
        let mut carried = CapabilityValues::default();
        self.filling = true;
        for (at, part_at) in producers_first(instances) {
            let part = &mut instances[at].parts[part_at];
            let outcome = self.fill(part, &mut carried);
            let unknown = std::mem::take(&mut self.lenient);
            if unknown {
                let produced = part.produces.iter().map(|(capability, _)| capability);
                carried.partial.extend(produced.cloned());
            }
            match outcome {
                Err(Stop::Error(problem)) if unknown => {
                    let message = format!("some values of `{}` are unknown", part.reference);
                    self.note(
                        Diagnostic::new(message, part.span).also(problem.span, problem.message),
                    );
                }
                outcome => outcome?,
            }
        }
        self.filling = false;
        self.scopes.set_facts(HashMap::new());
        self.note_unknown_facts(instances);
        Ok(())
    }

    fn fill(&mut self, part: &mut Part, carried: &mut CapabilityValues) -> EvalResult<()> {
        let name = part.reference.definition_name();
        let definition = match self.definition(Role::Define, &name, part.span)? {
            Some(definition) => Some(definition),
            None => self.definition(Role::Class, &name, part.span)?,
        };
        let facts_known = self.enter_node(part)?;
        let mut consumed = part.consumes.iter().map(|(capability, _)| capability);
        self.lenient = !facts_known || consumed.any(|one| !carried.is_whole(one));
        let given = self.collect_values(part, definition.as_deref(), carried)?;
        self.scopes.push(true);
        let outcome = self.in_scope_of(part, definition.as_ref(), &given, &mut carried.values);
        self.scopes.pop();
        outcome
    }

    /// Collects a component's values: from the application, then from capabilities.
    fn collect_values(
        &mut self,
        part: &Part,
        definition: Option<&Definition>,
        carried: &CapabilityValues,
    ) -> EvalResult<IndexMap<String, (Value, Span)>> {
        let mut given = part.attributes.clone();
        for (capability, span) in &part.consumes {
            if let Some(values) = carried.values.get(capability) {
                let brought = self.brought(part, definition, capability, values, *span)?;
                for (name, value) in brought {
                    given.entry(name).or_insert((value, *span));
                }
            }
        }
        let mut consumed = part.consumes.iter();
        let unknown = consumed.find(|(one, _)| !carried.values.contains_key(one));
        if let (Some(definition), Some((_, span))) = (definition, unknown) {
            // The capability would set them if its values were known.
            let parameters = definition.parameters.iter();
            for parameter in parameters.filter(|one| one.default.is_none()) {
                let missing = given.entry(parameter.name.clone());
                missing.or_insert((Value::Undef, *span));
            }
        }
        Ok(given)
    }

    /// Binds the parameters, then evaluates the component's capabilities.
    fn in_scope_of(
        &mut self,
        part: &mut Part,
        definition: Option<&Arc<Definition>>,
        given: &IndexMap<String, (Value, Span)>,
        known: &mut HashMap<Reference, Values>,
    ) -> EvalResult<()> {
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

    /// Binds a component without a known definition: its parameters are used as they are.
    fn bind_unchecked(
        &mut self,
        part: &Part,
        title: &str,
        given: &IndexMap<String, (Value, Span)>,
    ) -> EvalResult<Values> {
        let message = format!(
            "`{}` is not defined in the given files",
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

    /// Returns the values that a capability passes to a component.
    fn brought(
        &mut self,
        part: &Part,
        definition: Option<&Definition>,
        capability: &Reference,
        values: &Values,
        span: Span,
    ) -> EvalResult<Values> {
        let component = part.reference.definition_name();
        let mapping = self.mapping(
            MappingKind::Consumes,
            &component,
            &capability.type_name,
            span,
        )?;
        let mut brought = values.clone();
        if let Some(mapping) = mapping {
            self.scopes.push(true);
            let outcome = self.mapped(&mapping.attributes, capability, values, span);
            self.scopes.pop();
            brought.extend(outcome?);
        }
        brought.retain(|name, value| {
            let known = *value != Value::Undef || self.lenient;
            known && definition.is_none_or(|one| one.parameters.iter().any(|p| p.name == *name))
        });
        Ok(brought)
    }

    fn mapped(
        &mut self,
        attributes: &[crate::ast::Attribute],
        capability: &Reference,
        values: &Values,
        span: Span,
    ) -> EvalResult<Values> {
        for (name, value) in values {
            self.declare(name, value.clone(), span)?;
        }
        for name in ["title", "name"] {
            // The capability itself may have an attribute of that name.
            self.scopes.set(name, Value::text(&capability.title));
        }
        let set = self.attributes(attributes)?;
        Ok(set
            .into_iter()
            .map(|(name, (value, _))| (name, value))
            .collect())
    }

    /// Returns the values that a component gives to a capability. Its parameters are in scope.
    fn produced(&mut self, part: &Part, capability: &Reference, span: Span) -> EvalResult<Values> {
        let component = part.reference.definition_name();
        let mapping = self.mapping(
            MappingKind::Produces,
            &component,
            &capability.type_name,
            span,
        )?;
        let Some(mapping) = mapping else {
            let component = &part.reference.type_name;
            let message = format!(
                "there is no mapping by which `{component}` produces `{}`: consumers of `{capability}` get no values",
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
        let mut values: Values = set
            .into_iter()
            .map(|(name, (value, _))| (name, value))
            .collect();
        for (name, value) in self.same_names(part, capability) {
            values.entry(name).or_insert(value);
        }
        Ok(values)
    }

    /// Returns the producer's variables that have the names of the capability's parameters. If the
    /// capability's type is unknown, these are the producer's own parameters.
    fn same_names(&self, part: &Part, capability: &Reference) -> Values {
        let Some(names) = self.world.type_parameters(&lower(&capability.type_name)) else {
            return part.parameters.clone();
        };
        let names = names.into_iter().filter(|name| name != "name");
        names
            .filter_map(|name| {
                let value = self.scopes.get(&name)?.clone();
                (value != Value::Undef || self.lenient).then_some((name, value))
            })
            .collect()
    }
}

/// Returns the components with producers first. Those on a cycle come last: the plan refuses them.
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
