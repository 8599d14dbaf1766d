//! The in-memory index of everything that queries can ask for, by node.
//!
//! Callers feed the index: they replace a node's data piece by piece (its
//! fields, facts, catalog, reports). The order of feeding does not affect the
//! answers, and neither does the previous data.

mod exports;
mod fact_table;
mod node_set;
mod places;
mod row_table;

use std::collections::BTreeMap;

use bunraku_model::NodeName;
use bunraku_model::catalog::{Catalog, Resource, plain};
use serde_json::{Map, Value, json};

use exports::Exports;
pub use exports::{ExportFilter, ExportSum, ExportedResource};
pub(crate) use fact_table::FactTable;
pub(crate) use node_set::{NodeSet, Slot};
use places::Slab;
pub(crate) use places::{PathId, Segment};
pub(crate) use row_table::{Row, RowId, RowTable};

use crate::language::Entity;

/// The index data of one node.
#[derive(Debug)]
pub(crate) struct NodeEntry {
    pub(crate) name: NodeName,
    pub(crate) fields: Map<String, Value>,
    resources: Vec<RowId>,
    exports: Vec<RowId>,
    classes: Vec<RowId>,
    reports: BTreeMap<String, (RowId, Vec<RowId>)>,
}

/// The index.
#[derive(Debug)]
pub struct Index {
    by_name: BTreeMap<NodeName, Slot>,
    nodes: Slab<NodeEntry>,
    pub(crate) facts: FactTable,
    resources: RowTable,
    classes: RowTable,
    reports: RowTable,
    events: RowTable,
    exports: Exports,
    version: u64,
}

/// The numbers of distinct items in an index, which determine its memory use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexSize {
    pub nodes: usize,
    pub fact_values: usize,
    pub fact_paths: usize,
    pub resources: usize,
    pub classes: usize,
    pub reports: usize,
    pub events: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            nodes: Slab::default(),
            facts: FactTable::default(),
            resources: RowTable::new(&["type", "title"]),
            classes: RowTable::new(&["name"]),
            reports: RowTable::new(&["run", "status"]),
            events: RowTable::new(&["run", "status", "type", "title"]),
            exports: Exports::default(),
            version: 0,
        }
    }
}

impl Index {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn size(&self) -> IndexSize {
        let (fact_values, fact_paths) = self.facts.size();
        IndexSize {
            nodes: self.by_name.len(),
            fact_values,
            fact_paths,
            resources: self.resources.len(),
            classes: self.classes.len(),
            reports: self.reports.len(),
            events: self.events.len(),
        }
    }

    /// Returns a number that changes with every change of the index.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn touch(&mut self) {
        self.version += 1;
    }

    /// Sets some of a node's own fields; null removes a field. Creates the node if needed.
    pub fn set_fields(&mut self, node: &NodeName, fields: Map<String, Value>) {
        self.touch();
        let entry = self.entry(node).1;
        for (name, value) in fields {
            match value {
                Value::Null => entry.fields.remove(&name),
                value => entry.fields.insert(name, value),
            };
        }
    }

    /// Replaces a node's facts. Returns false if there are more values than are indexed.
    pub fn set_facts(&mut self, node: &NodeName, facts: &Map<String, Value>) -> bool {
        self.touch();
        let slot = self.entry(node).0;
        self.facts.set(slot, facts)
    }

    /// Replaces a node's resources and classes with those of its newest catalog.
    pub fn set_catalog(&mut self, node: &NodeName, catalog: &Catalog) {
        self.clear_catalog(node);
        let slot = self.entry(node).0;
        let rows = catalog.resources.iter().map(resource_row);
        let resources: Vec<RowId> = rows.map(|row| self.resources.add(slot, row)).collect();
        let classes = class_rows(catalog);
        let classes: Vec<RowId> = classes.map(|row| self.classes.add(slot, row)).collect();
        let entry = self.entry(node).1;
        (entry.resources, entry.classes) = (resources, classes);
    }

    /// Removes the data of a node's catalog.
    pub fn clear_catalog(&mut self, node: &NodeName) {
        let Some(slot) = self.by_name.get(node).copied() else {
            return;
        };
        self.touch();
        let entry = self.nodes.get_mut(slot).expect("a named node is there");
        let resources = std::mem::take(&mut entry.resources);
        let classes = std::mem::take(&mut entry.classes);
        for row in resources {
            self.resources.remove(slot, row);
        }
        for row in classes {
            self.classes.remove(slot, row);
        }
    }

    /// Sets the report of one run, with its events.
    pub fn set_report(
        &mut self,
        node: &NodeName,
        run: &str,
        report: Map<String, Value>,
        events: Vec<Map<String, Value>>,
    ) {
        self.remove_report(node, run);
        self.extend_report(node, run, report, events);
    }

    /// Replaces the row of a run's report, and adds events to the existing ones.
    pub fn extend_report(
        &mut self,
        node: &NodeName,
        run: &str,
        report: Map<String, Value>,
        events: Vec<Map<String, Value>>,
    ) {
        self.touch();
        let (slot, entry) = self.entry(node);
        let mut rows = Vec::new();
        if let Some((before, had)) = entry.reports.remove(run) {
            self.reports.remove(slot, before);
            rows = had;
        }
        let with_run = |mut row: Row| {
            row.insert("run".to_owned(), Value::from(run));
            row
        };
        let report = self.reports.add(slot, with_run(report));
        let first = rows.len();
        for (number, event) in events.into_iter().enumerate() {
            let mut event = with_run(event);
            event.insert("number".to_owned(), Value::from(first + number));
            rows.push(self.events.add(slot, event));
        }
        let entry = self.entry(node).1;
        entry.reports.insert(run.to_owned(), (report, rows));
    }

    pub fn remove_report(&mut self, node: &NodeName, run: &str) {
        let Some(slot) = self.by_name.get(node).copied() else {
            return;
        };
        self.touch();
        let entry = self.nodes.get_mut(slot).expect("a named node is there");
        if let Some((report, events)) = entry.reports.remove(run) {
            self.reports.remove(slot, report);
            for event in events {
                self.events.remove(slot, event);
            }
        }
    }

    /// Removes all data of a node.
    pub fn remove_node(&mut self, node: &NodeName) {
        let Some(slot) = self.by_name.get(node).copied() else {
            return;
        };
        self.clear_catalog(node);
        self.set_exports(node, &[]);
        let entry = self.nodes.get(slot).expect("a named node is there");
        let runs: Vec<String> = entry.reports.keys().cloned().collect();
        for run in runs {
            self.remove_report(node, &run);
        }
        self.facts.remove(slot);
        self.by_name.remove(node);
        self.nodes.remove(slot);
    }

    fn entry(&mut self, node: &NodeName) -> (Slot, &mut NodeEntry) {
        let slot = match self.by_name.get(node) {
            Some(slot) => *slot,
            None => {
                let slot = self.nodes.add(NodeEntry {
                    name: node.clone(),
                    fields: Map::new(),
                    resources: Vec::new(),
                    exports: Vec::new(),
                    classes: Vec::new(),
                    reports: BTreeMap::new(),
                });
                self.by_name.insert(node.clone(), slot);
                slot
            }
        };
        let entry = self.nodes.get_mut(slot);
        (slot, entry.expect("a named node is there"))
    }

    pub(crate) fn node(&self, slot: Slot) -> &NodeEntry {
        self.nodes
            .get(slot)
            .expect("a set names nodes that are there")
    }

    pub(crate) fn slot(&self, name: &str) -> Option<Slot> {
        let name = NodeName::new(name).ok()?;
        self.by_name.get(&name).copied()
    }

    pub(crate) fn all_nodes(&self) -> NodeSet {
        let mut all = NodeSet::default();
        self.by_name.values().for_each(|slot| all.insert(*slot));
        all
    }

    /// Returns the slots in the order of the nodes' names.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.by_name.values().copied()
    }

    pub(crate) fn table(&self, entity: Entity) -> Option<&RowTable> {
        match entity {
            Entity::Nodes | Entity::Facts | Entity::FactContents => None,
            Entity::Resources => Some(&self.resources),
            Entity::Classes => Some(&self.classes),
            Entity::Reports => Some(&self.reports),
            Entity::Events => Some(&self.events),
        }
    }
}

/// Replacement text for a secret.
const SECRET: &str = "[secret]";

/// Returns the row of a resource, without its secrets.
fn resource_row(resource: &Resource) -> Row {
    let reference = resource.reference();
    let parameters = resource.parameters.iter().map(|(name, value)| {
        let value = if resource.is_sensitive(name) {
            Value::from(SECRET)
        } else {
            plain(value).into_owned()
        };
        (name.clone(), value)
    });
    let mut tags = resource.tags.clone();
    tags.sort_unstable();
    let mut row = Row::new();
    row.insert("type".to_owned(), json!(reference.type_name()));
    row.insert("title".to_owned(), json!(resource.title));
    row.insert("exported".to_owned(), json!(resource.exported));
    row.insert("tags".to_owned(), json!(tags));
    row.insert("file".to_owned(), json!(resource.file));
    row.insert("line".to_owned(), json!(resource.line));
    row.insert("parameters".to_owned(), Value::Object(parameters.collect()));
    row
}

/// Returns the classes, spelled as in resources, or as in the list if only listed there.
fn class_rows(catalog: &Catalog) -> impl Iterator<Item = Row> {
    let resources = catalog.resources.iter();
    let classes = resources.filter(|resource| resource.reference().type_name() == "Class");
    let mut names: BTreeMap<String, String> = classes
        .map(|class| (class.title.to_lowercase(), class.title.clone()))
        .collect();
    for class in &catalog.classes {
        let name = names.entry(class.to_lowercase());
        name.or_insert_with(|| class.clone());
    }
    names.into_values().map(|name| {
        let mut row = Row::new();
        row.insert("name".to_owned(), Value::from(name));
        row
    })
}
