//! From single states to resources of a catalog.

mod arguments;
mod builtin;
mod exports;
mod outputs;
mod salt_arguments;

use std::collections::HashMap;

use bunraku_model::catalog::{
    Group, Requisite, RequisiteKind, Resource, ResourceReference, StateOrigin,
};
use serde_json::{Map, Value, json};

use crate::jinja::{Renderer, Scope};
use crate::low::{Chunk, OrderKind, ResolvedStates};
use crate::problem::Problem;
use crate::world::{Lookup, World};

/// The treatment of states that read outputs of other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OtherNodePolicy {
    /// There is no run over several nodes: such a state fails and reports this.
    #[default]
    Fail,
    /// A run will insert the outputs: the catalog names the outputs that it must wait for.
    Keep,
}

/// Translates every state for the engine.
pub(crate) struct Writer<'a> {
    pub(crate) world: &'a dyn World,
    pub(crate) renderer: &'a Renderer,
    pub(crate) scope: &'a Scope,
    pub(crate) chunks: &'a [Chunk],
    pub(crate) resolved: &'a ResolvedStates,
    pub(crate) other_nodes: OtherNodePolicy,
}

/// The resources of a node, in the order of the run.
#[derive(Default)]
pub(crate) struct WrittenResources {
    pub(crate) applied: Vec<Resource>,
    /// Resources for other nodes.
    pub(crate) exported: Vec<Resource>,
}

/// A type and its parameters.
struct TypedParameters {
    type_name: String,
    parameters: Map<String, Value>,
    sensitive: Vec<String>,
}

impl TypedParameters {
    /// Creates a state that fails when its turn comes. Salt also detects these at run time, and
    /// continues with the others.
    fn failure(comment: impl Into<String>) -> Self {
        let parameters = json!({"result": false, "comment": comment.into()});
        Self {
            type_name: "test".to_owned(),
            parameters: parameters.as_object().cloned().unwrap_or_default(),
            sensitive: Vec::new(),
        }
    }
}

impl Writer<'_> {
    pub(crate) fn resources(
        &self,
        notes: &mut Vec<Problem>,
    ) -> Result<WrittenResources, Vec<Problem>> {
        let mut problems = Vec::new();
        let exported = self.exported(&mut problems);
        let mut said = Vec::with_capacity(self.chunks.len());
        let registered = self.registered(&mut problems);
        let mut functions: HashMap<String, Lookup> = HashMap::new();
        for chunk in self.chunks {
            let full = chunk.full_function();
            let lookup = functions
                .entry(full.clone())
                .or_insert_with(|| self.world.function(&full));
            match self.translate(chunk, &full, lookup, notes) {
                Ok(one) => said.push(self.with_outputs(chunk, one, &registered, &mut problems)),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let references = self.references(&said);
        let order = &self.resolved.order;
        let mut position = vec![0_i64; self.chunks.len()];
        for (at, number) in order.iter().enumerate() {
            position[*number as usize] = at as i64;
        }
        let mut resources: Vec<Option<Resource>> = (said.into_iter().enumerate())
            .map(|(number, said)| Some(self.resource(number, said, &references, position[number])))
            .collect();
        let mut written = WrittenResources::default();
        for number in order {
            let number = *number as usize;
            let Some(resource) = resources[number].take() else {
                continue;
            };
            match &exported[number] {
                None => written.applied.push(resource),
                Some(tags) => written.exported.push(self.export(number, resource, tags)),
            }
        }
        Ok(written)
    }

    fn translate(
        &self,
        chunk: &Chunk,
        full: &str,
        lookup: &Lookup,
        notes: &mut Vec<Problem>,
    ) -> Result<TypedParameters, Problem> {
        builtin::check(chunk, full)?;
        if let Some((guard, function)) = arguments::unknown_guard(&chunk.arguments) {
            let message =
                format!("the function `{function}` in `{guard}` is not available in guards");
            notes.push(
                Problem::new(&message, chunk.spot.location())
                    .hint("the state will fail; write the check as a command"),
            );
            return Ok(TypedParameters::failure(message));
        }
        if let Some(said) = builtin::translate(chunk, full, self.scope) {
            return Ok(said);
        }
        match lookup {
            Lookup::Known(function) => self.arguments(chunk, full, function, notes),
            Lookup::UnknownFunction | Lookup::UnknownModule => {
                let names = self.world.functions();
                let problem =
                    Problem::new(format!("no state function `{full}`"), chunk.spot.location())
                        .near(full, names.iter().map(String::as_str));
                let hint = problem
                    .hint
                    .as_ref()
                    .map_or(String::new(), |hint| format!("; {hint}"));
                notes.push(problem);
                Ok(TypedParameters::failure(format!(
                    "State '{full}' was not found in SLS '{}'{hint}",
                    chunk.sls
                )))
            }
        }
    }

    /// Returns a reference for each state: its id if that is unique for the type.
    fn references(&self, said: &[TypedParameters]) -> Vec<ResourceReference> {
        let mut taken: HashMap<(String, String), ()> = HashMap::new();
        let mut references = Vec::with_capacity(said.len());
        for (chunk, said) in self.chunks.iter().zip(said) {
            let full = chunk.full_function();
            let candidates = [
                if chunk.name_order == 0 {
                    chunk.id.clone()
                } else {
                    format!("{} ({})", chunk.id, chunk.name)
                },
                format!("{} ({})", chunk.id, chunk.name),
                format!("{} ({}, {full})", chunk.id, chunk.name),
            ];
            let free =
                |title: &String| !taken.contains_key(&(said.type_name.clone(), title.clone()));
            let title = candidates.into_iter().find(free).unwrap_or_else(|| {
                (2..)
                    .map(|count| format!("{} ({}, {count})", chunk.id, chunk.name))
                    .find(free)
                    .expect("numbers do not end")
            });
            taken.insert((said.type_name.clone(), title.clone()), ());
            references.push(ResourceReference::new(&said.type_name, title));
        }
        references
    }

    fn resource(
        &self,
        number: usize,
        said: TypedParameters,
        references: &[ResourceReference],
        order: i64,
    ) -> Resource {
        let chunk = &self.chunks[number];
        let place = chunk.spot.location();
        let reference = &references[number];
        Resource {
            type_name: reference.type_name().to_owned(),
            title: reference.title().to_owned(),
            tags: vec![chunk.sls.clone()],
            file: Some(place.file),
            line: Some(place.line as u64),
            kind: Some("compilable_type".to_owned()),
            parameters: said.parameters,
            sensitive_parameters: said.sensitive,
            requisites: self.requisites(number, references),
            state: Some(Box::new(StateOrigin {
                id: chunk.id.clone(),
                name: chunk.name.clone(),
                function: chunk.full_function(),
                sls: Some(chunk.sls.clone()),
                order: Some(order),
            })),
            other: self.reads_from_nodes(chunk),
            ..Resource::default()
        }
    }

    fn requisites(&self, number: usize, references: &[ResourceReference]) -> Vec<Requisite> {
        let names = |targets: &[u32]| {
            targets
                .iter()
                .map(|target| references[*target as usize].clone())
                .collect()
        };
        let mut requisites: Vec<Requisite> = (self.resolved.requisites[number].iter())
            .map(|(kind, targets)| {
                let (kind, group) = requisite_kind(*kind);
                Requisite {
                    kind,
                    group,
                    targets: names(targets),
                }
            })
            .collect();
        let listens = &self.resolved.listens[number];
        if !listens.is_empty() {
            let targets = names(listens);
            requisites.push(Requisite {
                kind: RequisiteKind::Listen,
                group: Group::Usual,
                targets,
            });
        }
        requisites
    }
}

fn requisite_kind(kind: OrderKind) -> (RequisiteKind, Group) {
    match kind {
        OrderKind::Require => (RequisiteKind::Require, Group::Usual),
        OrderKind::RequireAny => (RequisiteKind::Require, Group::Any),
        OrderKind::Watch => (RequisiteKind::Watch, Group::Usual),
        OrderKind::WatchAny => (RequisiteKind::Watch, Group::Any),
        OrderKind::Prereq => (RequisiteKind::Prereq, Group::Usual),
        OrderKind::OnFail => (RequisiteKind::OnFail, Group::Usual),
        OrderKind::OnFailAny => (RequisiteKind::OnFail, Group::Any),
        OrderKind::OnFailAll => (RequisiteKind::OnFail, Group::All),
        OrderKind::OnChanges => (RequisiteKind::OnChanges, Group::Usual),
        OrderKind::OnChangesAny => (RequisiteKind::OnChanges, Group::Any),
    }
}
