//! From references to edges: Puppet's metaparameters, containment, and Salt's requisites.

use std::collections::{HashMap, HashSet};

use bunraku_model::Catalog;
use bunraku_model::catalog::{Group, Requisite, RequisiteKind, Resource, ResourceReference};
use serde_json::Value;

use super::error::near_names;
use super::steps::Nodes;
use super::{CatalogPlan, Edge, EdgeKind, PlanError, Problem, ProblemKind};

const METAPARAMETERS: [(&str, EdgeKind, bool); 4] = [
    ("require", EdgeKind::Require, false),
    ("before", EdgeKind::Require, true),
    ("subscribe", EdgeKind::Refresh, false),
    ("notify", EdgeKind::Refresh, true),
];

/// Returns all declared edges, or every reference to a missing resource.
pub(super) fn edges(
    catalog: &Catalog,
    plan: &mut CatalogPlan,
    nodes: &Nodes,
) -> Result<Vec<Edge>, PlanError> {
    let mut resolver = Resolver {
        nodes,
        edges: Vec::new(),
        problems: Vec::new(),
        groups: 0,
    };
    resolver.containment(catalog, plan);
    for resource in catalog
        .resources
        .iter()
        .filter(|resource| !resource.exported)
    {
        // Most resources have no metaparameters.
        let is_metaparameter = |name: &String| METAPARAMETERS.iter().any(|(word, ..)| word == name);
        if resource.requisites.is_empty() && !resource.parameters.keys().any(is_metaparameter) {
            continue;
        }
        let Some(own) = nodes.get(&resource.reference()) else {
            continue;
        };
        resolver.metaparameters(resource, own);
        for requisite in &resource.requisites {
            resolver.requisite(resource, own, requisite, plan);
        }
    }
    if resolver.problems.is_empty() {
        Ok(resolver.edges)
    } else {
        Err(PlanError::Invalid(resolver.problems))
    }
}

struct Resolver<'a> {
    nodes: &'a Nodes,
    edges: Vec<Edge>,
    problems: Vec<Problem>,
    groups: u32,
}

impl Resolver<'_> {
    /// Places the content of a container between its two nodes.
    fn containment(&mut self, catalog: &Catalog, plan: &CatalogPlan) {
        for container in 0..plan.containers.len() as u32 {
            let begin = plan.steps.len() as u32 + 2 * container;
            self.edges.push(Edge::new(
                begin,
                begin + 1,
                EdgeKind::Contain,
                "containment",
            ));
        }
        for edge in &catalog.edges {
            let find = |text: &str| {
                let reference: ResourceReference = text.parse().ok()?;
                self.nodes.get(&reference)
            };
            // An edge to an exported or missing resource has no effect.
            let (Some((begin, end)), Some((first, last))) =
                (find(&edge.source), find(&edge.target))
            else {
                continue;
            };
            if begin == end {
                continue;
            }
            self.edges
                .push(Edge::new(begin, first, EdgeKind::Contain, "containment"));
            self.edges
                .push(Edge::new(last, end, EdgeKind::Contain, "containment"));
        }
    }

    fn metaparameters(&mut self, resource: &Resource, own: (u32, u32)) {
        for (word, kind, forward) in METAPARAMETERS {
            let Some(value) = resource.parameters.get(word) else {
                continue;
            };
            let mut texts = Vec::new();
            flatten(value, &mut texts);
            for text in texts {
                let Some(other) = self.find_text(resource, word, &text) else {
                    continue;
                };
                let edge = if forward {
                    Edge::new(own.1, other.0, kind, word)
                } else {
                    Edge::new(other.1, own.0, kind, word)
                };
                self.edges.push(edge);
            }
        }
    }

    fn find_text(
        &mut self,
        resource: &Resource,
        word: &'static str,
        text: &str,
    ) -> Option<(u32, u32)> {
        match text.parse::<ResourceReference>() {
            Ok(reference) => self.find(resource, word, &reference),
            Err(_) => {
                self.problem(
                    resource,
                    ProblemKind::NotAReference {
                        requisite: word,
                        text: text.to_owned(),
                    },
                );
                None
            }
        }
    }

    fn find(
        &mut self,
        resource: &Resource,
        word: &'static str,
        reference: &ResourceReference,
    ) -> Option<(u32, u32)> {
        if let Some(found) = self.nodes.get(reference) {
            return Some(found);
        }
        if self.nodes.exported.contains(reference) {
            return None;
        }
        let same_type =
            (self.nodes.references()).filter(|known| known.type_name() == reference.type_name());
        let near = near_names(reference.title(), same_type.map(ResourceReference::title));
        let near = near
            .into_iter()
            .map(|title| ResourceReference::new(reference.type_name(), title).to_string());
        self.problem(
            resource,
            ProblemKind::MissingReference {
                requisite: word,
                target: reference.to_string(),
                near: near.collect(),
            },
        );
        None
    }

    fn requisite(
        &mut self,
        resource: &Resource,
        own: (u32, u32),
        requisite: &Requisite,
        plan: &mut CatalogPlan,
    ) {
        let word = requisite.kind.as_str();
        let found: Vec<_> = (requisite.targets.iter())
            .filter_map(|target| self.find(resource, word, target))
            .collect();
        let kind = match requisite.kind {
            RequisiteKind::Require => EdgeKind::Require,
            RequisiteKind::Watch => EdgeKind::Refresh,
            RequisiteKind::OnChanges => EdgeKind::OnChanges,
            RequisiteKind::OnFail => EdgeKind::OnFail,
            RequisiteKind::Prereq => {
                plan.probes
                    .entry(own.0)
                    .or_default()
                    .extend(found.iter().map(|target| target.0));
                let edges = found
                    .iter()
                    .map(|target| Edge::new(own.1, target.0, EdgeKind::Prereq, word));
                self.edges.extend(edges);
                return;
            }
            RequisiteKind::Listen => {
                plan.listens
                    .push((own.0, found.iter().map(|target| target.1).collect()));
                return;
            }
        };
        let all = match requisite.group {
            Group::All => true,
            Group::Any => false,
            Group::Usual => matches!(kind, EdgeKind::Require | EdgeKind::Refresh),
        };
        self.groups += 1;
        self.edges.extend(found.iter().map(|target| Edge {
            group: self.groups,
            all,
            ..Edge::new(target.1, own.0, kind, word)
        }));
    }

    fn problem(&mut self, resource: &Resource, kind: ProblemKind) {
        self.problems.push(Problem {
            reference: resource.reference(),
            place: resource.place(),
            kind,
        });
    }
}

fn flatten(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| flatten(item, texts)),
        Value::Null => {}
        other => texts.push(other.to_string()),
    }
}

/// Adds edges for `prereq`. A step with `prereq` looks at its targets before they run,
/// so it has to wait for the nodes that they wait for, or it would look too early.
pub(super) fn wait_for_what_probes_wait_for(
    probes: &HashMap<u32, Vec<u32>>,
    edges: &mut Vec<Edge>,
) {
    let mut probers: HashMap<u32, Vec<u32>> = HashMap::new();
    for (prober, targets) in probes {
        for target in targets {
            probers.entry(*target).or_default().push(*prober);
        }
    }
    if probers.is_empty() {
        return;
    }
    // A target may have its own `prereq` targets: the nodes that those wait for count as well.
    let mut seen: HashSet<(u32, u32)> = HashSet::new();
    let mut open: Vec<(u32, u32)> = (edges.iter())
        .filter(|edge| edge.kind != EdgeKind::Prereq)
        .map(|edge| (edge.from, edge.to))
        .collect();
    let mut added = Vec::new();
    while let Some((from, to)) = open.pop() {
        for prober in probers.get(&to).into_iter().flatten() {
            if from != *prober && seen.insert((from, *prober)) {
                open.push((from, *prober));
                added.push(Edge {
                    kind: EdgeKind::Order,
                    group: 0,
                    ..Edge::inferred(from, *prober, "what its prereq waits for")
                });
            }
        }
    }
    added.sort_by_key(|edge| (edge.to, edge.from));
    edges.extend(added);
}
