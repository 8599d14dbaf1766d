//! From the resources of a catalog to steps and containers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bunraku_model::Catalog;
use bunraku_model::canonical_json;
use bunraku_model::catalog::{CatalogSource, Place, Resource, ResourceReference, plain};
use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};

use super::control::Schedules;
use super::error::near_names;
use super::{Body, Control, PlanError, Problem, ProblemKind, Step, Steps, lazy};
use crate::resource_schedule::ResourceSchedule;
use crate::spec::EVERYWHERE;
use crate::types::AnyType;
use crate::{Declaration, Registry, Secrets, TypeSpec};

/// The result of [`read`].
pub(super) struct Parts {
    pub(super) steps: Steps,
    pub(super) containers: Vec<(ResourceReference, Place)>,
    pub(super) nodes: Nodes,
    pub(super) secrets: Secrets,
    pub(super) registered: HashSet<String>,
}

/// The positions of resources in the graph.
pub(super) struct Nodes {
    by_reference: HashMap<Arc<ResourceReference>, Position, RandomState>,
    steps: u32,
    /// Resources for other nodes.
    pub(super) exported: HashSet<ResourceReference>,
}

/// A position among the steps or among the containers.
#[derive(Clone, Copy)]
enum Position {
    Step(u32),
    Container(u32),
}

impl Nodes {
    /// Returns the node before a resource and the node after it, which are the same for a step.
    pub(super) fn get(&self, reference: &ResourceReference) -> Option<(u32, u32)> {
        Some(match *self.by_reference.get(reference)? {
            Position::Step(step) => (step, step),
            Position::Container(container) => {
                let begin = self.steps + 2 * container;
                (begin, begin + 1)
            }
        })
    }

    pub(super) fn references(&self) -> impl Iterator<Item = &ResourceReference> {
        self.by_reference.keys().map(|reference| &**reference)
    }
}

/// The kind of a resource.
enum Kind {
    Step(Result<Box<Step>, ProblemKind>),
    Container,
    Unknown,
}

/// The name among the sensitive parameters that marks the output of a resource as secret.
const OUTPUTS: &str = "outputs";

/// The number of resources below which a thread is not worthwhile.
const FEW: usize = 500;

/// Reads every resource and collects every problem.
pub(super) fn read(
    catalog: &Catalog,
    registry: &Registry,
    threads: usize,
) -> Result<Parts, PlanError> {
    let holders: HashSet<&str> = catalog
        .edges
        .iter()
        .map(|edge| edge.source.as_str())
        .collect();
    let registered = lazy::registered_names(catalog);
    let usual = Arc::new(Control::default());
    let schedules = schedules(catalog);
    let looked_at = each(&catalog.resources, threads, |index, resource| {
        if resource.exported {
            return None;
        }
        let reference = Arc::new(resource.reference());
        let kind = match known(resource, &reference, registry, &holders) {
            Ok(known) => Kind::Step(step(
                index,
                resource,
                &reference,
                known,
                &registered,
                (&usual, &schedules),
                &catalog.sources,
            )),
            Err(kind) => kind,
        };
        Some((reference, kind))
    });
    let mut reader = Reader {
        problems: Vec::new(),
        steps: Vec::new(),
        containers: Vec::new(),
        secrets: Secrets::default(),
        by_reference: HashMap::with_capacity_and_hasher(
            catalog.resources.len(),
            RandomState::default(),
        ),
        aliases: Vec::new(),
        exported: HashSet::new(),
        registrars: HashMap::new(),
    };
    for (resource, looked_at) in catalog.resources.iter().zip(looked_at) {
        match looked_at {
            None => {
                reader.exported.insert(resource.reference());
            }
            Some((reference, kind)) => reader.take(resource, reference, kind, registry),
        }
    }
    reader.finish()
}

/// Returns the schedules that a catalog declares.
fn schedules(catalog: &Catalog) -> Schedules {
    let declared = (catalog.resources.iter())
        .filter(|resource| resource.type_name.eq_ignore_ascii_case("schedule"));
    let read = |resource: &Resource| {
        let reference = Arc::new(resource.reference());
        let declaration = Declaration::of(resource, reference, "name");
        let schedule = ResourceSchedule::read(&resource.title, &declaration);
        let schedule = schedule
            .map(Arc::new)
            .map_err(|refusal| refusal.to_string());
        (resource.title.clone(), schedule)
    };
    declared.map(read).collect()
}

/// Calls a function for each resource, with several threads if there are many. The
/// answers are in order.
fn each<T: Send>(
    resources: &[Resource],
    threads: usize,
    ask: impl Fn(usize, &Resource) -> T + Sync,
) -> Vec<T> {
    let ask_some = |first: usize, some: &[Resource]| -> Vec<T> {
        (some.iter().enumerate())
            .map(|(index, resource)| ask(first + index, resource))
            .collect()
    };
    let share = resources.len().div_ceil(threads.max(1)).max(FEW);
    if resources.len() <= share {
        return ask_some(0, resources);
    }
    let (mine, others) = resources.split_at(share);
    let mut answers = Vec::with_capacity(resources.len());
    std::thread::scope(|scope| {
        let others: Vec<_> = (others.chunks(share).enumerate())
            .map(|(index, some)| {
                let first = share * (index + 1);
                let work = move || ask_some(first, some);
                let thread = std::thread::Builder::new().spawn_scoped(scope, work);
                (thread, work)
            })
            .collect();
        answers.extend(ask_some(0, mine));
        for (thread, work) in others {
            answers.extend(match thread {
                Ok(thread) => match thread.join() {
                    Ok(some) => some,
                    Err(panic) => std::panic::resume_unwind(panic),
                },
                // The machine cannot start another thread.
                Err(_) => work(),
            });
        }
    });
    answers
}

/// Returns the type of a resource, or its other kind.
fn known<'a>(
    resource: &Resource,
    reference: &ResourceReference,
    registry: &'a Registry,
    holders: &HashSet<&str>,
) -> Result<&'a Arc<dyn AnyType>, Kind> {
    if matches!(reference.type_name(), "Class" | "Stage" | "Node") {
        return Err(Kind::Container);
    }
    if let Some(known) = registry.get(&resource.type_name) {
        return Ok(known);
    }
    let defined = matches!(resource.kind.as_deref(), Some("defined_type" | "class"));
    if defined || holders.contains(reference.to_string().as_str()) {
        Err(Kind::Container)
    } else {
        Err(Kind::Unknown)
    }
}

fn step(
    index: usize,
    resource: &Resource,
    reference: &Arc<ResourceReference>,
    known: &Arc<dyn AnyType>,
    registered: &HashSet<&str>,
    (usual, schedules): (&Arc<Control>, &Schedules),
    sources: &BTreeMap<String, CatalogSource>,
) -> Result<Box<Step>, ProblemKind> {
    let spec = known.spec();
    check_names(resource, spec)?;
    let declaration = Declaration::of(resource, Arc::clone(reference), spec.name_parameter);
    let sensitive = (declaration.parameters().keys())
        .filter(|name| declaration.is_sensitive(name))
        .cloned()
        .collect();
    let control = Control::read(&declaration, spec, usual, schedules)?;
    let body = if resource.state.is_some() && lazy::waits(&declaration, registered) {
        Body::Lazy(Box::new(declaration.into_owned()))
    } else {
        Body::Ready(Arc::clone(known).prepare(&declaration)?)
    };
    let quick =
        matches!(&body, Body::Ready(instance) if instance.is_quick()) && !control.runs_commands();
    Ok(Box::new(Step {
        quick,
        reference: Arc::clone(reference),
        place: Arc::new(resource.place()),
        state: resource.state.clone(),
        control,
        body,
        sensitive,
        secret_outputs: (resource.sensitive_parameters.iter()).any(|name| name == OUTPUTS),
        declared: declared(resource, sources),
        order: (resource.state.as_ref().and_then(|state| state.order)).unwrap_or(index as i64),
    }))
}

struct Reader {
    problems: Vec<Problem>,
    steps: Steps,
    containers: Vec<(ResourceReference, Place)>,
    secrets: Secrets,
    by_reference: HashMap<Arc<ResourceReference>, Position, RandomState>,
    /// Other references to a step or container.
    aliases: Vec<(ResourceReference, Position)>,
    exported: HashSet<ResourceReference>,
    /// The step that registers each name.
    registrars: HashMap<String, Arc<ResourceReference>>,
}

impl Reader {
    fn take(
        &mut self,
        resource: &Resource,
        reference: Arc<ResourceReference>,
        kind: Kind,
        registry: &Registry,
    ) {
        if let Some(first) = self.place_of(&reference) {
            self.problem(resource, ProblemKind::DeclaredTwice { first });
            return;
        }
        match kind {
            Kind::Container => {
                let position = Position::Container(self.containers.len() as u32);
                self.alias(resource, position);
                self.by_reference.insert(Arc::clone(&reference), position);
                self.containers
                    .push(((*reference).clone(), resource.place()));
            }
            Kind::Unknown => {
                let names = registry
                    .specs()
                    .flat_map(|spec| std::iter::once(&spec.name).chain(spec.aliases));
                let near = near_names(&resource.type_name, names.copied());
                let name = resource.type_name.clone();
                self.problem(resource, ProblemKind::UnknownType { name, near });
            }
            Kind::Step(step) => match step.and_then(|step| self.registrar(step)) {
                Ok(step) => {
                    let position = Position::Step(self.steps.len() as u32);
                    self.alias(resource, position);
                    self.by_reference.insert(reference, position);
                    for name in &step.sensitive {
                        let value = resource.parameters.get(name);
                        value
                            .iter()
                            .for_each(|value| self.secrets.add(&plain(value)));
                    }
                    self.steps.push(step);
                }
                Err(kind) => self.problem(resource, kind),
            },
        }
    }

    /// Records the name under which a step registers its outputs.
    fn registrar(&mut self, step: Box<Step>) -> Result<Box<Step>, ProblemKind> {
        if let Some(name) = &step.control.register
            && let Some(first) = (self.registrars).insert(name.clone(), Arc::clone(&step.reference))
        {
            let (name, first) = (name.clone(), (*first).clone());
            return Err(ProblemKind::RegisteredTwice { name, first });
        }
        Ok(step)
    }

    /// Returns the place of declaration of a resource that was already read.
    fn place_of(&self, reference: &ResourceReference) -> Option<Place> {
        Some(match *self.by_reference.get(reference)? {
            Position::Step(step) => (*self.steps[step as usize].place).clone(),
            Position::Container(container) => self.containers[container as usize].1.clone(),
        })
    }

    /// Adds aliases. Puppet finds a resource by its title, its `alias` and its name.
    fn alias(&mut self, resource: &Resource, position: Position) {
        let named = (resource.parameters.iter())
            .filter(|(name, _)| matches!(name.as_str(), "alias" | "name" | "path"));
        for (_, value) in named {
            let names = match value {
                serde_json::Value::Array(names) => names.as_slice(),
                one => std::slice::from_ref(one),
            };
            let names = names.iter().filter_map(serde_json::Value::as_str);
            for name in names.filter(|name| *name != resource.title) {
                let reference = ResourceReference::new(&resource.type_name, name);
                self.aliases.push((reference, position));
            }
        }
        let without_slash = resource.title.trim_end_matches('/');
        if resource.title.starts_with('/') && without_slash.len() < resource.title.len() {
            let reference = ResourceReference::new(&resource.type_name, without_slash);
            self.aliases.push((reference, position));
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
        let mut by_reference = self.by_reference;
        for (reference, position) in self.aliases {
            by_reference.entry(Arc::new(reference)).or_insert(position);
        }
        Ok(Parts {
            nodes: Nodes {
                by_reference,
                steps: self.steps.len() as u32,
                exported: self.exported,
            },
            steps: self.steps,
            containers: self.containers,
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

/// Returns a hash of a declaration, including the content at the addresses that it
/// names. Sixteen bytes are enough to distinguish two declarations of the same
/// resource.
fn declared(resource: &Resource, sources: &BTreeMap<String, CatalogSource>) -> [u8; 16] {
    let mut hasher = Sha256::new();
    let content = |hasher: &mut Sha256, address: &str| {
        if let Some(source) = sources.get(address) {
            let files = source.files().map(|file| file.content);
            files.for_each(|content| hasher.update(content.as_bytes()));
        }
    };
    for (name, value) in &resource.parameters {
        hasher.update(name.as_bytes());
        hasher.update([0]);
        match value {
            serde_json::Value::String(text) => {
                hasher.update(text.as_bytes());
                content(&mut hasher, text);
            }
            value => {
                hasher.update(canonical_json(value).as_bytes());
                let several = value.as_array().into_iter().flatten();
                (several.filter_map(serde_json::Value::as_str))
                    .for_each(|address| content(&mut hasher, address));
            }
        }
        hasher.update([0]);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    std::array::from_fn(|index| digest[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_content_at_the_same_address_is_another_desired_state() {
        let resource: Resource = serde_json::from_value(serde_json::json!({
            "type": "File", "title": "/page", "parameters": {"source": "salt://web/page"}
        }))
        .unwrap();
        let sources = |content: &str| {
            let file = serde_json::json!({
                "kind": "file", "content": bunraku_model::ContentId::of(content.as_bytes()), "size": 1
            });
            BTreeMap::from([(
                "salt://web/page".to_owned(),
                serde_json::from_value(file).unwrap(),
            )])
        };
        let (one, two) = (sources("1"), sources("2"));
        assert_eq!(declared(&resource, &one), declared(&resource, &one));
        assert_ne!(declared(&resource, &one), declared(&resource, &two));
    }
}
