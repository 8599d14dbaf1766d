//! Exported resources, by type and node.
//!
//! They are kept whole, because another node's catalog will contain them. The
//! answer to a collector has a digest that is a sum over its resources, so the
//! digest without one node's own resources costs one subtraction.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bunraku_model::catalog::Resource;
use bunraku_model::{NodeName, content_id_of_json};
use serde_json::{Value, json};

use super::Index;

/// The sum of the hashes of a set of resources. The order does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExportSum([u64; 4]);

impl ExportSum {
    fn of(value: &Value) -> Self {
        let id = content_id_of_json(value);
        let mut parts = [0; 4];
        for (part, bytes) in parts.iter_mut().zip(id.as_bytes().chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(bytes);
            *part = u64::from_le_bytes(eight);
        }
        Self(parts)
    }

    fn add(&mut self, other: Self) {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            *mine = mine.wrapping_add(other);
        }
    }

    /// Returns the sum without a part of it.
    pub fn without(mut self, part: Self) -> Self {
        for (mine, part) in self.0.iter_mut().zip(part.0) {
            *mine = mine.wrapping_sub(part);
        }
        self
    }

    pub fn to_hex(self) -> String {
        self.0.iter().map(|part| format!("{part:016x}")).collect()
    }
}

/// One exported resource.
#[derive(Clone, Debug)]
pub struct ExportedResource {
    pub node: NodeName,
    pub resource: Arc<Resource>,
    sum: ExportSum,
}

impl ExportedResource {
    fn new(node: &NodeName, resource: &Resource) -> Self {
        let seen = json!({
            "node": node,
            "type": resource.type_name,
            "title": resource.title,
            "parameters": resource.parameters,
            "tags": resource.tags,
            "state": resource.state,
            "arguments": resource.other.get("arguments"),
        });
        Self {
            node: node.clone(),
            resource: Arc::new(resource.clone()),
            sum: ExportSum::of(&seen),
        }
    }
}

/// The exported resources of one type.
#[derive(Default, Debug)]
struct OfType {
    by_node: BTreeMap<NodeName, Vec<ExportedResource>>,
    /// Changes with every change.
    version: u64,
}

/// All exported resources.
#[derive(Default, Debug)]
pub(super) struct Exports {
    /// Types stay when their last resource is gone, so that versions never repeat.
    types: HashMap<String, OfType>,
    by_node: HashMap<NodeName, Vec<String>>,
}

impl Exports {
    /// Replaces the exports of a node. Returns false if it had none before and has none now.
    pub(super) fn set(&mut self, node: &NodeName, resources: &[Resource]) -> bool {
        let before = self.by_node.remove(node).unwrap_or_default();
        for name in &before {
            if let Some(of_type) = self.types.get_mut(name) {
                of_type.by_node.remove(node);
                of_type.version += 1;
            }
        }
        let mut names: Vec<String> = Vec::new();
        for resource in resources {
            let name = resource.reference().type_name().to_owned();
            let of_type = self.types.entry(name.clone()).or_default();
            of_type.version += 1;
            let exported = ExportedResource::new(node, resource);
            of_type
                .by_node
                .entry(node.clone())
                .or_default()
                .push(exported);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for name in &names {
            if let Some(own) = self
                .types
                .get_mut(name)
                .and_then(|of| of.by_node.get_mut(node))
            {
                own.sort_by(|one, other| one.resource.title.cmp(&other.resource.title));
            }
        }
        let changed = !before.is_empty() || !names.is_empty();
        if !names.is_empty() {
            self.by_node.insert(node.clone(), names);
        }
        changed
    }
}

/// A condition of a collector.
#[derive(Clone, PartialEq, Debug)]
pub enum ExportFilter {
    Equal(String, Value),
    NotEqual(String, Value),
    And(Box<ExportFilter>, Box<ExportFilter>),
    Or(Box<ExportFilter>, Box<ExportFilter>),
}

/// Maximum nesting depth of a filter.
const DEEPEST: usize = 100;

impl ExportFilter {
    /// Reads Puppet's form: `[field, "==", value]` or `[filter, "and", filter]`.
    pub fn read(filter: &Value) -> Result<Self, String> {
        Self::read_at(filter, 0)
    }

    fn read_at(filter: &Value, depth: usize) -> Result<Self, String> {
        if depth > DEEPEST {
            return Err(format!(
                "a collector is nested more than {DEEPEST} levels deep"
            ));
        }
        let wrong = || format!("a collector cannot use the condition {filter}");
        let Some([left, Value::String(operator), right]) = filter.as_array().map(Vec::as_slice)
        else {
            return Err(wrong());
        };
        let both = || {
            let left = Box::new(Self::read_at(left, depth + 1)?);
            Ok::<_, String>((left, Box::new(Self::read_at(right, depth + 1)?)))
        };
        let field = || left.as_str().map(str::to_owned).ok_or_else(wrong);
        Ok(match operator.as_str() {
            "==" => Self::Equal(field()?, right.clone()),
            "!=" => Self::NotEqual(field()?, right.clone()),
            "and" => both().map(|(left, right)| Self::And(left, right))?,
            "or" => both().map(|(left, right)| Self::Or(left, right))?,
            _ => return Err(wrong()),
        })
    }

    /// Returns whether a resource matches. `tag` is any of its tags, in any
    /// case; `title` is its title; everything else is a parameter.
    pub fn matches(&self, resource: &Resource) -> bool {
        match self {
            Self::Equal(field, wanted) => is_equal(resource, field, wanted),
            Self::NotEqual(field, wanted) => !is_equal(resource, field, wanted),
            Self::And(left, right) => left.matches(resource) && right.matches(resource),
            Self::Or(left, right) => left.matches(resource) || right.matches(resource),
        }
    }
}

fn is_equal(resource: &Resource, field: &str, wanted: &Value) -> bool {
    match (field, wanted) {
        ("tag", Value::String(wanted)) => {
            let wanted = wanted.to_lowercase();
            resource.tags.iter().any(|tag| tag.to_lowercase() == wanted)
        }
        ("title", wanted) => wanted.as_str() == Some(resource.title.as_str()),
        (name, wanted) => resource.parameters.get(name) == Some(wanted),
    }
}

impl Index {
    /// Replaces the resources that a node exports. Collectors find them, and so
    /// does a query for `resources`, as `exported`.
    pub fn set_exports(&mut self, node: &NodeName, exports: &[Resource]) {
        if !self.exports.set(node, exports) {
            return;
        }
        self.touch();
        let slot = self.entry(node).0;
        let before = std::mem::take(&mut self.entry(node).1.exports);
        for row in before {
            self.resources.remove(slot, row);
        }
        let rows = exports.iter().map(|export| {
            let exported = Resource {
                exported: true,
                ..export.clone()
            };
            super::resource_row(&exported)
        });
        let rows = rows.map(|row| self.resources.add(slot, row)).collect();
        self.entry(node).1.exports = rows;
    }

    /// Returns the exported resources of a type, by node and title.
    pub fn collect<'a>(
        &'a self,
        type_name: &str,
        filter: Option<&'a ExportFilter>,
    ) -> impl Iterator<Item = &'a ExportedResource> + use<'a> {
        let of_type = self.exports.types.get(type_name);
        let all = of_type
            .into_iter()
            .flat_map(|of_type| of_type.by_node.values().flatten());
        all.filter(move |one| filter.is_none_or(|filter| filter.matches(&one.resource)))
    }

    /// Returns the sum of all resources that a collector finds, and that of each node.
    pub fn collected_sums(
        &self,
        type_name: &str,
        filter: Option<&ExportFilter>,
    ) -> (ExportSum, BTreeMap<NodeName, ExportSum>) {
        let mut total = ExportSum::default();
        let mut by_node: BTreeMap<NodeName, ExportSum> = BTreeMap::new();
        for found in self.collect(type_name, filter) {
            total.add(found.sum);
            by_node
                .entry(found.node.clone())
                .or_default()
                .add(found.sum);
        }
        (total, by_node)
    }

    /// Returns a number that changes when the exports of a type change.
    pub fn exports_version(&self, type_name: &str) -> u64 {
        let of_type = self.exports.types.get(type_name);
        of_type.map_or(0, |of_type| of_type.version)
    }
}
