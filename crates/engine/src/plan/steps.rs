//! From the resources of a catalog to steps and containers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bunraku_model::Catalog;
use bunraku_model::canonical_json;
use bunraku_model::catalog::{Place, Resource, ResourceReference};
use sha2::{Digest, Sha256};

use super::error::near_names;
use super::{Body, Control, PlanError, Problem, ProblemKind, Step, lazy};
use crate::spec::EVERYWHERE;
use crate::types::AnyType;
use crate::{Declaration, Registry, Secrets, TypeSpec};

/// What [`read`] makes of a catalog.
pub(super) struct Parts {
    pub(super) steps: Vec<Step>,
    pub(super) containers: Vec<(ResourceReference, Place)>,
    pub(super) nodes: Nodes,
    pub(super) secrets: Secrets,
    pub(super) registered: HashSet<String>,
}

/// Where each resource is in the graph: the node before it and the node after
/// it, which are the same for a step.
#[derive(Default)]
pub(super) struct Nodes {
    pub(super) by_reference: HashMap<ResourceReference, (u32, u32)>,
    /// Resources that are for other nodes.
    pub(super) exported: HashSet<ResourceReference>,
}

enum Kind<'a> {
    Step(&'a Arc<dyn AnyType>),
    Container,
    Unknown,
}

/// Reads every resource and collects every problem.
pub(super) fn read(catalog: &Catalog, registry: &Registry) -> Result<Parts, PlanError> {
    let holders: HashSet<&str> = catalog
        .edges
        .iter()
        .map(|edge| edge.source.as_str())
        .collect();
    let registered = lazy::registered_names(catalog);
    let mut reader = Reader {
        registered: &registered,
        problems: Vec::new(),
        steps: Vec::new(),
        containers: Vec::new(),
        secrets: Secrets::default(),
        places: HashMap::new(),
        aliases: Vec::new(),
        exported: HashSet::new(),
        registrars: HashMap::new(),
    };
    for (index, resource) in catalog.resources.iter().enumerate() {
        let reference = resource.reference();
        if resource.exported {
            reader.exported.insert(reference);
            continue;
        }
        let kind = kind_of(resource, &reference, registry, &holders);
        reader.take(index, resource, reference, kind, registry);
    }
    reader.finish()
}

fn kind_of<'a>(
    resource: &Resource,
    reference: &ResourceReference,
    registry: &'a Registry,
    holders: &HashSet<&str>,
) -> Kind<'a> {
    if matches!(reference.type_name(), "Class" | "Stage" | "Node") {
        return Kind::Container;
    }
    if let Some(known) = registry.get(&resource.type_name) {
        return Kind::Step(known);
    }
    let defined = matches!(resource.kind.as_deref(), Some("defined_type" | "class"));
    if defined || holders.contains(reference.to_string().as_str()) {
        Kind::Container
    } else {
        Kind::Unknown
    }
}

struct Reader<'a> {
    registered: &'a HashSet<&'a str>,
    problems: Vec<Problem>,
    steps: Vec<Step>,
    containers: Vec<(ResourceReference, Place)>,
    secrets: Secrets,
    places: HashMap<ResourceReference, Place>,
    /// Other references to a step or container: `(reference, position, is_step)`.
    aliases: Vec<(ResourceReference, usize, bool)>,
    exported: HashSet<ResourceReference>,
    /// Who registers which name.
    registrars: HashMap<String, ResourceReference>,
}

impl Reader<'_> {
    fn take(
        &mut self,
        index: usize,
        resource: &Resource,
        reference: ResourceReference,
        kind: Kind<'_>,
        registry: &Registry,
    ) {
        if let Some(first) = self.places.insert(reference.clone(), resource.place()) {
            self.problem(resource, ProblemKind::DeclaredTwice { first });
            return;
        }
        match kind {
            Kind::Container => {
                self.alias(resource, self.containers.len(), false);
                self.containers.push((reference, resource.place()));
            }
            Kind::Unknown => {
                let names = registry
                    .specs()
                    .flat_map(|spec| std::iter::once(&spec.name).chain(spec.aliases));
                let near = near_names(&resource.type_name, names.copied());
                let name = resource.type_name.clone();
                self.problem(resource, ProblemKind::UnknownType { name, near });
            }
            Kind::Step(known) => match self.step(index, resource, reference, known) {
                Ok(step) => {
                    self.alias(resource, self.steps.len(), true);
                    self.steps.push(step);
                }
                Err(kind) => self.problem(resource, kind),
            },
        }
    }

    fn step(
        &mut self,
        index: usize,
        resource: &Resource,
        reference: ResourceReference,
        known: &Arc<dyn AnyType>,
    ) -> Result<Step, ProblemKind> {
        let spec = known.spec();
        check_names(resource, spec)?;
        let declaration = Declaration::new(resource, spec.name_parameter);
        let mut sensitive = Vec::new();
        for name in declaration
            .parameters()
            .keys()
            .filter(|name| declaration.is_sensitive(name))
        {
            self.secrets.add(&declaration.parameters()[name.as_str()]);
            sensitive.push(name.clone());
        }
        let control = Control::read(&declaration, spec)?;
        if let Some(name) = &control.register
            && let Some(first) = self.registrars.insert(name.clone(), reference.clone())
        {
            let name = name.clone();
            return Err(ProblemKind::RegisteredTwice { name, first });
        }
        let body = if resource.state.is_some() && lazy::waits(&declaration, self.registered) {
            Body::Lazy(Box::new(declaration))
        } else {
            Body::Ready(Arc::clone(known).prepare(&declaration)?)
        };
        Ok(Step {
            reference: Arc::new(reference),
            place: Arc::new(resource.place()),
            state: resource.state.clone(),
            control,
            body,
            sensitive,
            declared: declared(resource),
            order: (resource.state.as_ref().and_then(|state| state.order)).unwrap_or(index as i64),
        })
    }

    /// Puppet finds a resource by its title, its `alias` and its name.
    fn alias(&mut self, resource: &Resource, position: usize, is_step: bool) {
        for parameter in ["alias", "name", "path"] {
            let names = match resource.parameters.get(parameter) {
                Some(serde_json::Value::String(name)) => vec![name.as_str()],
                Some(serde_json::Value::Array(names)) => {
                    names.iter().filter_map(|name| name.as_str()).collect()
                }
                _ => continue,
            };
            for name in names.into_iter().filter(|name| *name != resource.title) {
                let reference = ResourceReference::new(&resource.type_name, name);
                self.aliases.push((reference, position, is_step));
            }
        }
        let without_slash = resource.title.trim_end_matches('/');
        if resource.title.starts_with('/') && without_slash.len() < resource.title.len() {
            let reference = ResourceReference::new(&resource.type_name, without_slash);
            self.aliases.push((reference, position, is_step));
        }
    }

    fn problem(&mut self, resource: &Resource, kind: ProblemKind) {
        self.problems.push(Problem {
            reference: resource.reference(),
            place: resource.place(),
            kind,
        });
    }

    fn finish(self) -> Result<Parts, PlanError> {
        if !self.problems.is_empty() {
            return Err(PlanError::Invalid(self.problems));
        }
        let steps = self.steps.len();
        let node = |position: usize, is_step: bool| {
            if is_step {
                (position as u32, position as u32)
            } else {
                let begin = (steps + 2 * position) as u32;
                (begin, begin + 1)
            }
        };
        let mut by_reference = HashMap::with_capacity(steps + self.containers.len());
        for (position, step) in self.steps.iter().enumerate() {
            by_reference.insert((*step.reference).clone(), node(position, true));
        }
        for (position, (reference, _)) in self.containers.iter().enumerate() {
            by_reference.insert(reference.clone(), node(position, false));
        }
        for (reference, position, is_step) in self.aliases {
            by_reference
                .entry(reference)
                .or_insert_with(|| node(position, is_step));
        }
        Ok(Parts {
            steps: self.steps,
            containers: self.containers,
            nodes: Nodes {
                by_reference,
                exported: self.exported,
            },
            secrets: self.secrets,
            registered: self.registrars.into_keys().collect(),
        })
    }
}

fn check_names(resource: &Resource, spec: &'static TypeSpec) -> Result<(), ProblemKind> {
    let everywhere = |name: &str| EVERYWHERE.iter().any(|known| known.name == name);
    match resource
        .parameters
        .keys()
        .find(|name| !spec.takes(name) && !everywhere(name))
    {
        None => Ok(()),
        Some(name) => {
            let known = spec
                .parameters
                .iter()
                .chain(EVERYWHERE)
                .map(|known| known.name);
            Err(ProblemKind::UnknownParameter {
                of: spec.name,
                name: name.clone(),
                near: near_names(name, known),
            })
        }
    }
}

/// A hash of what was declared. Sixteen bytes are enough to tell one wish of
/// the same resource from another.
fn declared(resource: &Resource) -> [u8; 16] {
    let mut hasher = Sha256::new();
    for (name, value) in &resource.parameters {
        hasher.update(name.as_bytes());
        hasher.update([0]);
        match value {
            serde_json::Value::String(text) => hasher.update(text.as_bytes()),
            value => hasher.update(canonical_json(value).as_bytes()),
        }
        hasher.update([0]);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    std::array::from_fn(|index| digest[index])
}
