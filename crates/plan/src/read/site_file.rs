//! Our own site file, in YAML.
//!
//! Names of capabilities are local to their application: `sql` is its own, `shop/sql` belongs
//! to the application `shop`. The same applies to `waits_for`.
//!
//! A `query` that consists only of name characters, `*` and `?` is a pattern of node names.
//! Anything else is in the query language, and must be answered before the file is read:
//! [`site_queries`] returns these queries.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::ReadError;
use crate::inventory::{Inventory, NodePattern};
use crate::site::{Application, Component, LocatedName, Site};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    environment: Option<String>,
    /// Absent or empty: a site without applications.
    #[serde(default)]
    applications: Option<BTreeMap<String, ApplicationEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplicationEntry {
    components: BTreeMap<String, ComponentEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComponentEntry {
    #[serde(default)]
    node: Option<String>,
    #[serde(default)]
    nodes: Vec<String>,
    #[serde(default)]
    query: Option<String>,
    #[serde(default)]
    produces: Vec<String>,
    #[serde(default)]
    consumes: Vec<String>,
    #[serde(default)]
    waits_for: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
}

/// Returns every query of a site file, to be answered in [`Inventory::answers`].
pub fn site_queries(file: &str, text: &str) -> Result<BTreeSet<String>, ReadError> {
    let read = parsed(file, text)?;
    let components = read
        .applications
        .unwrap_or_default()
        .into_values()
        .flat_map(|application| application.components.into_values());
    Ok(components
        .filter_map(|component| component.query)
        .filter(|query| !is_pattern(query))
        .collect())
}

fn parsed(file: &str, text: &str) -> Result<File, ReadError> {
    let is_content = |line: &str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#') && line != "---"
    };
    if !text.lines().any(is_content) {
        return Ok(File::default());
    }
    serde_saphyr::from_str(text).map_err(|error| ReadError::SiteFile {
        file: file.to_owned(),
        why: error.to_string(),
    })
}

/// Returns `true` for a pattern of node names. A query has at least a space, a brace or a
/// bracket.
fn is_pattern(query: &str) -> bool {
    let part_of_a_name =
        |one: char| one.is_ascii_alphanumeric() || matches!(one, '.' | '-' | '_' | '*' | '?');
    query.chars().all(part_of_a_name)
}

/// Reads a site file. Queries are answered from the inventory.
pub fn site_file(file: &str, text: &str, inventory: &Inventory) -> Result<Site, ReadError> {
    let read = parsed(file, text)?;
    let mut applications = Vec::new();
    for (name, entry) in read.applications.unwrap_or_default() {
        let mut components = Vec::with_capacity(entry.components.len());
        for (component, about) in entry.components {
            components.push(one(file, &name, &component, about, inventory)?);
        }
        applications.push(Application { name, components });
    }
    Ok(Site {
        environment: read.environment.unwrap_or_else(|| "production".to_owned()),
        applications,
        code_id: None,
        notes: Vec::new(),
        reads: Vec::new(),
    })
}

fn one(
    file: &str,
    application: &str,
    name: &str,
    about: ComponentEntry,
    inventory: &Inventory,
) -> Result<Component, ReadError> {
    let scoped = |names: Vec<String>| -> Vec<LocatedName> {
        let full = |name: String| {
            if name.contains('/') {
                LocatedName::new(name)
            } else {
                LocatedName::new(format!("{application}/{name}"))
            }
        };
        names.into_iter().map(full).collect()
    };
    let mut nodes: Vec<String> = about.node.into_iter().chain(about.nodes).collect();
    if let Some(query) = &about.query {
        let component = format!("{application}/{name}");
        nodes.extend(matching(file, query, &component, inventory)?);
    }
    nodes.sort();
    nodes.dedup();
    let tags = if about.tags.is_empty() {
        vec![name.to_lowercase()]
    } else {
        about.tags
    };
    Ok(Component {
        name: format!("{application}/{name}"),
        nodes: nodes.into_iter().map(LocatedName::new).collect(),
        on_each: true,
        produces: scoped(about.produces),
        consumes: scoped(about.consumes),
        waits_for: scoped(about.waits_for),
        tags,
        place: None,
        ..Component::default()
    })
}

fn matching(
    file: &str,
    query: &str,
    component: &str,
    inventory: &Inventory,
) -> Result<Vec<String>, ReadError> {
    let unknown = || ReadError::NoInventory {
        file: file.to_owned(),
        query: query.to_owned(),
    };
    let found: Vec<String> = if is_pattern(query) {
        let nodes = inventory.nodes.as_ref().ok_or_else(unknown)?;
        let pattern = NodePattern::new(query);
        let matching = nodes.iter().filter(|node| pattern.matches(node.as_str()));
        matching.map(ToString::to_string).collect()
    } else {
        let found = inventory.answers.get(query).ok_or_else(unknown)?;
        found.iter().map(ToString::to_string).collect()
    };
    if found.is_empty() {
        Err(ReadError::NobodyMatches {
            file: file.to_owned(),
            query: query.to_owned(),
            component: component.to_owned(),
        })
    } else {
        Ok(found)
    }
}
