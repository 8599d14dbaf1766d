//! Order that is not declared: Puppet's autorequires, and more in genius mode.
//!
//! A Puppet catalog implies its autorequires in every mode. States have none, so for
//! them order is inferred in genius mode only.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use foldhash::fast::RandomState;

use super::{Body, CatalogPlan, Edge, OrderingMode};
use crate::{Relations, SystemObject};

/// Returns all inferred edges. Each step's relations are queried twice, and held for
/// one step at a time: that costs less than keeping them for all steps.
pub(super) fn edges(plan: &CatalogPlan) -> Vec<Edge> {
    let mut providers = Providers::of(plan);
    let genius = plan.mode == OrderingMode::Genius;
    let mut edges = Vec::new();
    let mut relations = Relations::default();
    for (index, step) in plan.steps.iter().enumerate() {
        if genius || step.state.is_none() {
            ask(&step.body, &mut relations);
            one(index as u32, &relations, genius, &mut providers, &mut edges);
        }
    }
    edges
}

/// Replaces `relations` with those of a step.
fn ask(body: &Body, relations: &mut Relations) {
    relations.clear();
    if let Body::Ready(instance) = body {
        instance.relations(relations);
    }
}

/// The providers of each thing.
struct Providers {
    by_thing: HashMap<SystemObject, SmallList, RandomState>,
    by_path: HashMap<PathBuf, SmallList, RandomState>,
    /// The last directory that was looked up, and the nearest provided path from there
    /// up: catalogs list files directory by directory.
    last: Option<(PathBuf, Option<PathBuf>)>,
}

/// A list that nearly always has a single element.
enum SmallList {
    One(u32),
    More(Vec<u32>),
}

impl SmallList {
    fn push(&mut self, index: u32) {
        match self {
            Self::One(first) => *self = Self::More(vec![*first, index]),
            Self::More(all) => all.push(index),
        }
    }

    fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(all) => all,
        }
    }
}

impl Providers {
    fn of(plan: &CatalogPlan) -> Self {
        let mut all = Self {
            by_thing: HashMap::default(),
            by_path: HashMap::with_capacity_and_hasher(plan.steps.len(), RandomState::default()),
            last: None,
        };
        let mut relations = Relations::default();
        for (index, step) in plan.steps.iter().enumerate() {
            ask(&step.body, &mut relations);
            for thing in relations.provides.drain(..) {
                match thing {
                    SystemObject::Path(path) => add(&mut all.by_path, path, index as u32),
                    thing => add(&mut all.by_thing, thing, index as u32),
                }
            }
        }
        all
    }

    fn get(&self, thing: &SystemObject) -> &[u32] {
        let few = match thing {
            SystemObject::Path(path) => self.by_path.get(path),
            thing => self.by_thing.get(thing),
        };
        few.map_or(&[], SmallList::as_slice)
    }

    /// Returns the providers of the nearest provided path above this one.
    fn above(&mut self, path: &Path) -> &[u32] {
        let Some(parent) = path.parent() else {
            return &[];
        };
        let known =
            (self.last.as_ref()).is_some_and(|(last, _)| last.as_os_str() == parent.as_os_str());
        if !known {
            let nearest = (parent.ancestors()).find(|above| self.by_path.contains_key(*above));
            self.last = Some((parent.to_owned(), nearest.map(Path::to_owned)));
        }
        let nearest = self.last.as_ref().and_then(|(_, nearest)| nearest.as_ref());
        let few = nearest.and_then(|nearest| self.by_path.get(nearest));
        few.map_or(&[], SmallList::as_slice)
    }
}

fn add<K: Eq + std::hash::Hash>(map: &mut HashMap<K, SmallList, RandomState>, key: K, index: u32) {
    match map.entry(key) {
        Entry::Occupied(known) => known.into_mut().push(index),
        Entry::Vacant(new) => {
            new.insert(SmallList::One(index));
        }
    }
}

/// Returns every path that some step provides.
pub(super) fn managed(plan: &CatalogPlan) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    let mut relations = Relations::default();
    for step in &plan.steps {
        ask(&step.body, &mut relations);
        paths.extend(
            relations
                .provides
                .drain(..)
                .filter_map(|thing| match thing {
                    SystemObject::Path(path) => Some(path),
                    _ => None,
                }),
        );
    }
    paths
}

fn one(
    index: u32,
    relations: &Relations,
    genius: bool,
    providers: &mut Providers,
    edges: &mut Vec<Edge>,
) {
    let others = |all: &[u32]| -> Vec<u32> {
        all.iter()
            .copied()
            .filter(|other| *other != index)
            .collect()
    };
    let extra: &[_] = if genius { &relations.genius_needs } else { &[] };
    for (thing, why) in relations.needs.iter().chain(extra) {
        let before = others(providers.get(thing)).into_iter();
        edges.extend(before.map(|other| Edge::inferred(other, index, why)));
    }
    let above: &[_] = if genius { &relations.genius_above } else { &[] };
    let always = (relations.needs_above.iter()).map(|path| (path, "its directory"));
    for (path, why) in always.chain(above.iter().map(|(path, why)| (path, *why))) {
        let before = others(providers.above(path)).into_iter();
        edges.extend(before.map(|other| Edge::inferred(other, index, why)));
    }
    let serves: &[_] = if genius { &relations.serves } else { &[] };
    for (thing, why) in serves {
        let after = others(providers.get(thing)).into_iter();
        edges.extend(after.map(|other| Edge::inferred(index, other, why)));
    }
}
