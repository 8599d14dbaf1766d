//! Order that nobody declared: Puppet's autorequires, and in genius mode more.
//!
//! A Puppet catalog means its autorequires in every mode. States have none,
//! so for them order is inferred in genius mode only.

use std::collections::HashMap;
use std::path::Path;

use super::{Body, Edge, Mode, Plan};
use crate::{Relations, Thing};

/// All inferred edges.
pub(super) fn edges(plan: &Plan) -> Vec<Edge> {
    let genius = plan.mode == Mode::Genius;
    let relations: Vec<Option<Relations>> = plan
        .steps
        .iter()
        .map(|step| match &step.body {
            Body::Ready(instance) if genius || step.state.is_none() => {
                let mut relations = Relations::default();
                instance.relations(&mut relations);
                Some(relations)
            }
            _ => None,
        })
        .collect();
    let mut providers: HashMap<&Thing, Vec<u32>> = HashMap::new();
    for (index, relations) in relations.iter().enumerate() {
        for thing in relations.iter().flat_map(|relations| &relations.provides) {
            providers.entry(thing).or_default().push(index as u32);
        }
    }
    let mut edges = Vec::new();
    for (index, relations) in relations.iter().enumerate() {
        let Some(relations) = relations else {
            continue;
        };
        one(index as u32, relations, genius, &providers, &mut edges);
    }
    edges
}

fn one(
    index: u32,
    relations: &Relations,
    genius: bool,
    providers: &HashMap<&Thing, Vec<u32>>,
    edges: &mut Vec<Edge>,
) {
    let extra: &[_] = if genius { &relations.genius_needs } else { &[] };
    for (thing, why) in relations.needs.iter().chain(extra) {
        for provider in providers
            .get(thing)
            .into_iter()
            .flatten()
            .filter(|other| **other != index)
        {
            edges.push(Edge::inferred(*provider, index, why));
        }
    }
    let above: &[_] = if genius { &relations.genius_above } else { &[] };
    let always = relations
        .needs_above
        .iter()
        .map(|path| (path, "its directory"));
    for (path, why) in always.chain(above.iter().map(|(path, why)| (path, *why))) {
        let nearest = (path.ancestors().skip(1))
            .find_map(|above: &Path| providers.get(&Thing::Path(above.to_owned())));
        for provider in nearest
            .into_iter()
            .flatten()
            .filter(|other| **other != index)
        {
            edges.push(Edge::inferred(*provider, index, why));
        }
    }
    let serves: &[_] = if genius { &relations.serves } else { &[] };
    for (thing, why) in serves {
        for provider in providers
            .get(thing)
            .into_iter()
            .flatten()
            .filter(|other| **other != index)
        {
            edges.push(Edge::inferred(index, *provider, why));
        }
    }
}
