//! Components on nodes, and their dependencies on each other.

use std::collections::{BTreeMap, HashMap};

use bunraku_model::{NodeName, content_id_of_json};

use super::near::near;
use crate::problem::SiteProblem;
use crate::site::{Component, LocatedName, Site};

/// One component on one node.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) application: usize,
    /// The component, such as `Lamp::Mysql[app1]`. Units of a component that runs on several
    /// nodes share this name.
    pub(super) component: String,
    pub(super) node: NodeName,
    pub(super) produces: Vec<String>,
    pub(super) consumes: Vec<String>,
    pub(super) tags: Vec<String>,
    /// A digest of each parameter's value.
    pub(super) parameters: BTreeMap<String, String>,
}

/// The reason why a unit waits for another.
#[derive(Clone, Debug)]
pub(super) struct UnitDependency {
    pub(super) from: usize,
    pub(super) capability: Option<String>,
    /// The removed components in between.
    pub(super) through: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Units {
    pub(super) list: Vec<Unit>,
    pub(super) needs: Vec<Vec<UnitDependency>>,
}

impl Units {
    /// Returns a node number for each unit, in order of the node names.
    pub(super) fn node_numbers(&self) -> Vec<usize> {
        let mut names: Vec<&NodeName> = self.list.iter().map(|unit| &unit.node).collect();
        names.sort();
        names.dedup();
        let number: HashMap<&NodeName, usize> = names.into_iter().zip(0..).collect();
        self.list.iter().map(|unit| number[&unit.node]).collect()
    }
}

/// A component with its position in the site.
type LocatedComponent<'s> = (usize, &'s Component);

/// A problem, and the components that it concerns: the numbers of their applications and their
/// names.
pub(super) struct FoundProblem {
    pub(super) problem: SiteProblem,
    pub(super) components: Vec<(usize, String)>,
}

/// The problems of a site.
#[derive(Default)]
struct Findings(Vec<FoundProblem>);

impl Findings {
    fn push<'s>(
        &mut self,
        problem: SiteProblem,
        components: impl IntoIterator<Item = &'s LocatedComponent<'s>>,
    ) {
        let components = components.into_iter();
        let components = components.map(|(application, one)| (*application, one.name.clone()));
        self.0.push(FoundProblem {
            problem,
            components: components.collect(),
        });
    }
}

/// Returns the units of a site, and everything that is wrong with it. Dependencies that cannot be
/// resolved are left out.
pub(super) fn read(site: &Site) -> (Units, Vec<FoundProblem>) {
    let components: Vec<LocatedComponent<'_>> = site
        .applications
        .iter()
        .enumerate()
        .flat_map(|(at, application)| application.components.iter().map(move |one| (at, one)))
        .collect();
    let mut problems = Findings::default();
    let mut units = Units::default();
    let mut of_component: Vec<Vec<usize>> = Vec::with_capacity(components.len());
    for located @ (application, component) in &components {
        let nodes = nodes_of(located, &mut problems);
        let first = units.list.len();
        units.list.extend(nodes.into_iter().map(|node| Unit {
            application: *application,
            component: component.name.clone(),
            node,
            produces: names(&component.produces),
            consumes: names(&component.consumes),
            tags: component.tags.clone(),
            parameters: digests(component),
        }));
        of_component.push((first..units.list.len()).collect());
    }
    let producers = producers(&components, &mut problems);
    let by_name = by_name(&components, &mut problems);
    units.needs = vec![Vec::new(); units.list.len()];
    for (at, located @ (_, component)) in components.iter().enumerate() {
        let mut found: Vec<(usize, Option<&str>)> = Vec::new();
        for capability in &component.consumes {
            match producers.get(capability.name.as_str()) {
                Some(from) => found.push((*from, Some(&capability.name))),
                None => problems.push(unproduced(component, capability, &producers), [located]),
            }
        }
        for capability in &component.requires {
            match producers.get(capability.name.as_str()) {
                Some(from) => found.push((*from, Some(&capability.name))),
                None => problems.push(unexported(component, capability, &producers), [located]),
            }
        }
        for wanted in &component.waits_for {
            match by_name.get(wanted.name.as_str()) {
                Some(from) => found.push((*from, None)),
                None => problems.push(unknown(component, wanted, &by_name), [located]),
            }
        }
        // A component's own capabilities exist by the time it runs.
        for (from, capability) in found.into_iter().filter(|(from, _)| *from != at) {
            for unit in &of_component[at] {
                units.needs[*unit].extend(of_component[from].iter().map(|from| UnitDependency {
                    from: *from,
                    capability: capability.map(str::to_owned),
                    through: Vec::new(),
                }));
            }
        }
    }
    (units, problems.0)
}

/// Returns a digest of each value that the component receives or passes on. The values themselves
/// stay out of plans, which servers store and show.
fn digests(component: &Component) -> BTreeMap<String, String> {
    const LENGTH: usize = 12;
    let digest = |value: &serde_json::Value| {
        let mut text = content_id_of_json(value).to_string();
        text.truncate(LENGTH);
        text
    };
    let own = component.parameters.iter();
    let own = own.map(|(name, value)| (name.clone(), digest(value)));
    let passed_on = component.capabilities.iter().map(|(name, values)| {
        let values = serde_json::Value::Object(values.clone());
        (name.clone(), digest(&values))
    });
    own.chain(passed_on).collect()
}

fn names(list: &[LocatedName]) -> Vec<String> {
    let mut names: Vec<String> = list.iter().map(|one| one.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the nodes of a component: exactly one, unless it runs on several.
fn nodes_of(located: &LocatedComponent<'_>, problems: &mut Findings) -> Vec<NodeName> {
    let component = located.1;
    let mut nodes: BTreeMap<NodeName, &LocatedName> = BTreeMap::new();
    for node in &component.nodes {
        match NodeName::new(node.name.clone()) {
            Ok(name) => {
                nodes.entry(name).or_insert(node);
            }
            Err(error) => problems.push(
                SiteProblem::new(format!("`{}`: {error}", component.name))
                    .at(node.place.as_ref(), ""),
                [located],
            ),
        }
    }
    if component.nodes.is_empty() {
        let problem = SiteProblem::new(format!("`{}` is not mapped to a node", component.name));
        problems.push(
            problem
                .at(component.place.as_ref(), "declared here")
                .hint("every component needs a node to run on"),
            [located],
        );
    }
    if nodes.len() > 1 && !component.on_each {
        let list: Vec<String> = nodes.keys().map(|node| format!("`{node}`")).collect();
        let message = format!(
            "`{}` is mapped to {} nodes: {}",
            component.name,
            nodes.len(),
            list.join(", ")
        );
        problems.push(
            SiteProblem::new(message)
                .at(component.place.as_ref(), "declared here")
                .hint("a component runs on one node: declare one component for each"),
            [located],
        );
    }
    nodes.into_keys().collect()
}

/// Returns the component that produces each capability.
fn producers<'s>(
    components: &[LocatedComponent<'s>],
    problems: &mut Findings,
) -> BTreeMap<&'s str, usize> {
    let mut producers: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, (_, component)) in components.iter().enumerate() {
        for capability in &component.produces {
            match producers.get(capability.name.as_str()) {
                Some(earlier) if *earlier != at => {
                    let other = components[*earlier].1;
                    let said = other
                        .produces
                        .iter()
                        .find(|one| one.name == capability.name)
                        .and_then(|one| one.place.as_ref());
                    let message = format!(
                        "`{}` is produced twice: by `{}` and by `{}`",
                        capability.name, other.name, component.name
                    );
                    problems.push(
                        SiteProblem::new(message)
                            .at(capability.place.as_ref(), "second definition")
                            .at(said, "first definition"),
                        // Also those that would wait for one of the two.
                        components.iter().enumerate().filter_map(|(number, one)| {
                            let consumes = |wanted: &LocatedName| wanted.name == capability.name;
                            let concerned = number == at
                                || number == *earlier
                                || one.1.consumes.iter().any(consumes);
                            concerned.then_some(one)
                        }),
                    );
                }
                _ => {
                    producers.insert(&capability.name, at);
                }
            }
        }
    }
    producers
}

fn by_name<'s>(
    components: &[LocatedComponent<'s>],
    problems: &mut Findings,
) -> BTreeMap<&'s str, usize> {
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, (_, component)) in components.iter().enumerate() {
        if let Some(earlier) = by_name.insert(&component.name, at) {
            problems.push(
                SiteProblem::new(format!("`{}` is declared twice", component.name))
                    .at(component.place.as_ref(), "second declaration")
                    .at(components[earlier].1.place.as_ref(), "first declared here"),
                [&components[at], &components[earlier]],
            );
        }
    }
    by_name
}

fn unproduced(
    component: &Component,
    wanted: &LocatedName,
    known: &BTreeMap<&str, usize>,
) -> SiteProblem {
    let message = format!(
        "`{}` consumes `{}`, which no component produces",
        component.name, wanted.name
    );
    let problem = SiteProblem::new(message).at(wanted.place.as_ref(), "consumed here");
    match near(&wanted.name, known.keys().copied()) {
        Some(hint) => problem.hint(hint),
        None => problem.hint("add a component that produces it"),
    }
}

fn unexported(
    component: &Component,
    wanted: &LocatedName,
    known: &BTreeMap<&str, usize>,
) -> SiteProblem {
    let message = format!(
        "`{}` requires `{}`, which no component exports",
        component.name, wanted.name
    );
    let problem = SiteProblem::new(message).at(wanted.place.as_ref(), "required here");
    match near(&wanted.name, known.keys().copied()) {
        Some(hint) => problem.hint(hint),
        None => problem.hint("export it from the component that provides it"),
    }
}

fn unknown(
    component: &Component,
    wanted: &LocatedName,
    known: &BTreeMap<&str, usize>,
) -> SiteProblem {
    let message = format!(
        "`{}` waits for `{}`, which does not exist",
        component.name, wanted.name
    );
    let problem = SiteProblem::new(message).at(wanted.place.as_ref(), "");
    match near(&wanted.name, known.keys().copied()) {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}
