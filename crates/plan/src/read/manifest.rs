//! A site manifest in Puppet's language.

use bunraku_puppet::{Limits, Located, Value, World, evaluate_site};

use super::ReadError;
use crate::site::{Application, Component, LocatedName, Site, Values};

/// Evaluates manifests (name and text) that contain a `site`.
pub fn site_manifest(
    files: &[(String, String)],
    world: &dyn World,
    environment: &str,
) -> Result<Site, ReadError> {
    let evaluated = evaluate_site(files, world, &Limits::default())
        .map_err(|error| ReadError::Puppet(Box::new(error)))?;
    let applications = evaluated
        .applications
        .into_iter()
        .map(|application| Application {
            name: application.reference.to_string(),
            components: application.components.into_iter().map(component).collect(),
        });
    Ok(Site {
        environment: environment.to_owned(),
        applications: applications.collect(),
        code_id: None,
        notes: evaluated.notes,
        reads: Vec::new(),
    })
}

fn component(component: bunraku_puppet::Component) -> Component {
    Component {
        name: component.reference.to_string(),
        tags: vec![component.reference.definition_name()],
        nodes: component.nodes.into_iter().map(named).collect(),
        produces: component.produces.into_iter().map(named).collect(),
        consumes: component.consumes.into_iter().map(named).collect(),
        requires: component.requires.into_iter().map(named).collect(),
        waits_for: component.waits_for.into_iter().map(named).collect(),
        parameters: values(&component.parameters),
        capabilities: component
            .capabilities
            .iter()
            .map(|one| (one.reference.to_string(), values(&one.values)))
            .collect(),
        place: Some(component.place),
        ..Component::default()
    }
}

fn values<'v>(values: impl IntoIterator<Item = (&'v String, &'v Value)>) -> Values {
    let json = values.into_iter();
    json.map(|(name, value)| (name.clone(), value.to_json()))
        .collect()
}

fn named<T: std::fmt::Display>(at: Located<T>) -> LocatedName {
    LocatedName {
        name: at.name.to_string(),
        place: Some(at.place),
    }
}
