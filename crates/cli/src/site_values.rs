//! The values of a site for programs: parameters of components, and the values that capabilities
//! carry.

use std::collections::BTreeMap;

use bunraku_plan::{Component, Site, Values};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct ComponentValues<'s> {
    application: &'s str,
    component: &'s str,
    nodes: Vec<&'s str>,
    parameters: &'s Values,
    /// The values of each capability, in both directions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    produces: BTreeMap<&'s str, Option<&'s Values>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    consumes: BTreeMap<&'s str, Option<&'s Values>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    requires: BTreeMap<&'s str, Option<&'s Values>>,
}

/// Returns one entry for each component, in the order of the site.
pub(crate) fn of(site: &Site) -> Vec<ComponentValues<'_>> {
    let components = || {
        site.applications
            .iter()
            .flat_map(|one| one.components.iter().map(|part| (one.name.as_str(), part)))
    };
    let carried: BTreeMap<&str, &Values> = components()
        .flat_map(|(_, part)| &part.capabilities)
        .map(|(name, values)| (name.as_str(), values))
        .collect();
    let one = |(application, part)| component(application, part, &carried);
    components().map(one).collect()
}

fn component<'s>(
    application: &'s str,
    part: &'s Component,
    carried: &BTreeMap<&str, &'s Values>,
) -> ComponentValues<'s> {
    let values = |names: &'s [bunraku_plan::LocatedName]| {
        let names = names.iter().map(|one| one.name.as_str());
        names
            .map(|name| (name, carried.get(name).copied()))
            .collect()
    };
    ComponentValues {
        application,
        component: &part.name,
        nodes: part.nodes.iter().map(|node| node.name.as_str()).collect(),
        parameters: &part.parameters,
        produces: values(&part.produces),
        consumes: values(&part.consumes),
        requires: values(&part.requires),
    }
}
