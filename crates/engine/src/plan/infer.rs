//! Order that nobody declared: Puppet's autorequires, and in genius mode more.
//!
//! A Puppet catalog means its autorequires in every mode. States have none,
//! so for them order is inferred in genius mode only.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::{Body, Edge, Mode, Plan};
use crate::{Relations, Thing};

/// All inferred edges.
pub(super) fn edges(plan: &Plan) -> Vec<Edge> {
    let relations: Vec<Option<Relations>> = plan
        .steps
        .iter()
        .map(|step| relations_of(&step.body))
        .collect();
    let mut providers: HashMap<&Thing, Vec<u32>> = HashMap::new();
    for (index, relations) in relations.iter().enumerate() {
        for thing in relations.iter().flat_map(|relations| &relations.provides) {
            providers.entry(thing).or_default().push(index as u32);
        }
    }
    let genius = plan.mode == Mode::Genius;
    let mut edges = Vec::new();
    for (index, relations) in relations.iter().enumerate() {
        if let Some(relations) = relations
            && (genius || plan.steps[index].state.is_none())
        {
            one(index as u32, relations, genius, &providers, &mut edges);
        }
    }
    edges
}

fn relations_of(body: &Body) -> Option<Relations> {
    let Body::Ready(instance) = body else {
        return None;
    };
    let mut relations = Relations::default();
    instance.relations(&mut relations);
    Some(relations)
}

/// Every path that some step provides.
pub(super) fn managed(plan: &Plan) -> BTreeSet<PathBuf> {
    let all = plan
        .steps
        .iter()
        .filter_map(|step| relations_of(&step.body));
    let things = all.flat_map(|relations| relations.provides);
    let paths = things.filter_map(|thing| match thing {
        Thing::Path(path) => Some(path),
        _ => None,
    });
    paths.collect()
}

fn one(
    index: u32,
    relations: &Relations,
    genius: bool,
    providers: &HashMap<&Thing, Vec<u32>>,
    edges: &mut Vec<Edge>,
) {
    let mut after = |thing: &Thing, why: &'static str| {
        let others = providers
            .get(thing)
            .into_iter()
            .flatten()
            .filter(|other| **other != index);
        edges.extend(others.map(|other| Edge::inferred(*other, index, why)));
    };
    let extra: &[_] = if genius { &relations.genius_needs } else { &[] };
    for (thing, why) in relations.needs.iter().chain(extra) {
        after(thing, why);
    }
    let above: &[_] = if genius { &relations.genius_above } else { &[] };
    let always = relations
        .needs_above
        .iter()
        .map(|path| (path, "its directory"));
    for (path, why) in always.chain(above.iter().map(|(path, why)| (path, *why))) {
        let things = path
            .ancestors()
            .skip(1)
            .map(|above: &Path| Thing::Path(above.to_owned()));
        if let Some(nearest) = things
            .into_iter()
            .find(|thing| providers.contains_key(thing))
        {
            after(&nearest, why);
        }
    }
    let serves: &[_] = if genius { &relations.serves } else { &[] };
    for (thing, why) in serves {
        let others = providers
            .get(thing)
            .into_iter()
            .flatten()
            .filter(|other| **other != index);
        edges.extend(others.map(|other| Edge::inferred(index, *other, why)));
    }
}
