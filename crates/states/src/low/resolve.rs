//! Resolves requisites: names, ids, wildcards, `sls:` targets.

use std::collections::{HashMap, HashSet};

use bunraku_model::Glob;
use serde_json::Value;

use super::Chunk;
use super::graph::Graph;
use super::order;
use crate::high::RequisiteTarget;
use crate::matcher::is_pattern;
use crate::problem::Problem;

/// Salt's requisites that order states. A larger weight counts more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum OrderKind {
    OnFail,
    OnFailAny,
    OnFailAll,
    Require,
    RequireAny,
    OnChanges,
    OnChangesAny,
    Watch,
    WatchAny,
    Prereq,
}

/// All kinds, in the order in which Salt reads them.
const KINDS: [OrderKind; 10] = [
    OrderKind::Require,
    OrderKind::RequireAny,
    OrderKind::Watch,
    OrderKind::WatchAny,
    OrderKind::Prereq,
    OrderKind::OnFail,
    OrderKind::OnFailAny,
    OrderKind::OnFailAll,
    OrderKind::OnChanges,
    OrderKind::OnChangesAny,
];

impl OrderKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OnFail => "onfail",
            Self::OnFailAny => "onfail_any",
            Self::OnFailAll => "onfail_all",
            Self::Require => "require",
            Self::RequireAny => "require_any",
            Self::OnChanges => "onchanges",
            Self::OnChangesAny => "onchanges_any",
            Self::Watch => "watch",
            Self::WatchAny => "watch_any",
            Self::Prereq => "prereq",
        }
    }
}

/// The states with their requisites, by number.
pub(crate) struct ResolvedStates {
    /// The requisites of each state.
    pub(crate) requisites: Vec<Vec<(OrderKind, Vec<u32>)>>,
    /// The states that each state listens to.
    pub(crate) listens: Vec<Vec<u32>>,
    /// The numbers in the order of the run.
    pub(crate) order: Vec<u32>,
}

/// Resolves every target and computes the order.
pub(crate) fn resolve(chunks: &[Chunk]) -> Result<ResolvedStates, Vec<Problem>> {
    let index = Index::new(chunks);
    let mut problems = Vec::new();
    let mut requisites: Vec<Vec<(OrderKind, Vec<u32>)>> = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let mut own = Vec::new();
        for kind in KINDS {
            let Some((_, wanted)) = chunk
                .requisites
                .iter()
                .find(|(word, _)| word == kind.name())
            else {
                continue;
            };
            let mut targets = Vec::new();
            for wanted in wanted {
                match index.find(wanted) {
                    Some(found) => targets.extend(found),
                    None => problems.push(index.missing(chunks, kind.name(), wanted)),
                }
            }
            let mut seen = HashSet::new();
            targets.retain(|target| seen.insert(*target));
            if !targets.is_empty() {
                own.push((kind, targets));
            }
        }
        requisites.push(own);
    }
    let listens = listeners(chunks, &index, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let graph = graph(chunks, &requisites);
    let order = order::order(chunks, &graph).map_err(|problem| vec![*problem])?;
    Ok(ResolvedStates {
        requisites,
        listens,
        order,
    })
}

fn listeners(chunks: &[Chunk], index: &Index<'_>, problems: &mut Vec<Problem>) -> Vec<Vec<u32>> {
    let mut listens: Vec<Vec<u32>> = vec![Vec::new(); chunks.len()];
    for (number, chunk) in chunks.iter().enumerate() {
        for (word, wanted) in &chunk.requisites {
            let word = word.as_str();
            if word != "listen" && word != "listen_in" {
                continue;
            }
            for wanted in wanted {
                let Some(found) = index.find(wanted) else {
                    problems.push(index.missing(chunks, word, wanted));
                    continue;
                };
                for target in found {
                    let (listener, heard) = if word == "listen" {
                        (number, target)
                    } else {
                        (target as usize, number as u32)
                    };
                    if !listens[listener].contains(&heard) {
                        listens[listener].push(heard);
                    }
                }
            }
        }
    }
    listens
}

/// Every state by module with name and id, and by file.
struct Index<'a> {
    by_name: HashMap<(&'a str, &'a str), Vec<u32>>,
    by_sls: HashMap<&'a str, Vec<u32>>,
}

impl<'a> Index<'a> {
    fn new(chunks: &'a [Chunk]) -> Self {
        let mut by_name: HashMap<(&str, &str), Vec<u32>> = HashMap::new();
        let mut by_sls: HashMap<&str, Vec<u32>> = HashMap::new();
        for (number, chunk) in chunks.iter().enumerate() {
            let number = number as u32;
            for module in [chunk.module.as_str(), "id"] {
                let names = [chunk.name.as_str(), chunk.id.as_str()];
                for name in names.into_iter().chain(chunk.shared_name.as_deref()) {
                    let list = by_name.entry((module, name)).or_default();
                    if list.last() != Some(&number) {
                        list.push(number);
                    }
                }
            }
            for sls in std::iter::once(&chunk.sls).chain(&chunk.included_from) {
                let list = by_sls.entry(sls).or_default();
                if list.last() != Some(&number) {
                    list.push(number);
                }
            }
        }
        Self { by_name, by_sls }
    }

    fn find(&self, wanted: &RequisiteTarget) -> Option<Vec<u32>> {
        let pattern = is_pattern(&wanted.name);
        let glob = Glob::with_sets(&wanted.name);
        let sorted = |found: &mut Vec<u32>| {
            found.sort_unstable();
            found.dedup();
        };
        if wanted.module == "sls" {
            if !pattern {
                return self.by_sls.get(wanted.name.as_str()).cloned();
            }
            // As in Salt, a wildcard over files may match none.
            let matching = self.by_sls.iter().filter(|(sls, _)| glob.matches(sls));
            let mut found: Vec<u32> = matching
                .flat_map(|(_, list)| list.iter().copied())
                .collect();
            sorted(&mut found);
            return Some(found);
        }
        if !pattern {
            return self
                .by_name
                .get(&(wanted.module.as_str(), wanted.name.as_str()))
                .cloned();
        }
        let matching = self
            .by_name
            .iter()
            .filter(|((module, name), _)| *module == wanted.module && glob.matches(name));
        let mut found: Vec<u32> = matching
            .flat_map(|(_, list)| list.iter().copied())
            .collect();
        sorted(&mut found);
        (!found.is_empty()).then_some(found)
    }

    fn missing(&self, chunks: &[Chunk], word: &str, wanted: &RequisiteTarget) -> Problem {
        let what = if wanted.module == "id" {
            format!("`{}`", wanted.name)
        } else {
            format!("`{}: {}`", wanted.module, wanted.name)
        };
        let problem = Problem::new(
            format!("`{word}` refers to {what}, which does not exist"),
            wanted.spot.location(),
        );
        // The right name with another module is the most likely mistake.
        if let Some(same) = self
            .by_name
            .get(&("id", wanted.name.as_str()))
            .filter(|_| wanted.module != "sls")
        {
            let modules: Vec<String> = (same.iter())
                .map(|number| format!("`{}: {}`", chunks[*number as usize].module, wanted.name))
                .collect();
            return problem.hint(format!("did you mean {}?", modules.join(" or ")));
        }
        if wanted.module == "sls" {
            return problem.near(&wanted.name, self.by_sls.keys().copied());
        }
        let names: Vec<&str> = (self.by_name.keys())
            .filter(|(module, _)| *module == wanted.module)
            .map(|(_, name)| *name)
            .collect();
        problem.near(&wanted.name, names.into_iter())
    }
}

fn graph(chunks: &[Chunk], requisites: &[Vec<(OrderKind, Vec<u32>)>]) -> Graph {
    let mut graph = Graph::new(chunks.len());
    let looked_at: HashSet<u32> = (requisites.iter().flatten())
        .filter(|(kind, _)| *kind == OrderKind::Prereq)
        .flat_map(|(_, targets)| targets.iter().copied())
        .collect();
    for (number, own) in requisites.iter().enumerate() {
        let number = number as u32;
        for (kind, targets) in own {
            for target in targets {
                if *kind == OrderKind::Prereq {
                    let look = graph.check_node(*target);
                    graph.edge(look, number, OrderKind::Prereq);
                    graph.edge(number, *target, OrderKind::Require);
                    if looked_at.contains(&number) {
                        let own_look = graph.check_node(number);
                        graph.edge(look, own_look, OrderKind::Prereq);
                    }
                    continue;
                }
                if looked_at.contains(&number) {
                    let look = graph.check_node(number);
                    graph.edge(*target, look, *kind);
                }
                graph.edge(*target, number, *kind);
            }
        }
    }
    outputs(chunks, &mut graph);
    graph
}

/// Adds edges: a state that uses an output runs after the state that registers it.
fn outputs(chunks: &[Chunk], graph: &mut Graph) {
    let registers: HashMap<&str, u32> = (chunks.iter().enumerate())
        .filter_map(|(number, chunk)| {
            Some((chunk.arguments.get("register")?.as_str()?, number as u32))
        })
        .collect();
    if registers.is_empty() {
        return;
    }
    for (number, chunk) in chunks.iter().enumerate() {
        let mut names = Vec::new();
        chunk
            .arguments
            .values()
            .for_each(|value| crate::output_names::output_names(value, &mut names));
        crate::output_names::output_names(&Value::from(chunk.name.as_str()), &mut names);
        for name in names {
            if let Some(source) = registers.get(name.as_str())
                && *source != number as u32
            {
                graph.edge(*source, number as u32, OrderKind::Require);
            }
        }
    }
}
