//! The facts of all nodes, by path and by node.
//!
//! A fact set is split into its values, each with its path. Each path has a
//! column that maps values to the nodes that have them. So a comparison
//! examines only the distinct values of one column.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::node_set::{Members, NodeSet, Slot};
use super::places::{PathId, Paths, Segment, ValueId, Values};
use crate::language::{Matcher, Step};
use crate::scalar::Scalar;

/// Maximum number of indexed values per fact set; the rest is not indexed. One
/// node must not fill the memory that all share.
const MOST_VALUES: usize = 50_000;

type Column = HashMap<ValueId, Members>;

#[derive(Default, Debug)]
pub(crate) struct FactTable {
    values: Values,
    paths: Paths,
    columns: HashMap<PathId, Column>,
    /// Sorted by path.
    rows: HashMap<Slot, Vec<(PathId, ValueId)>>,
}

impl FactTable {
    /// Replaces a node's facts. Returns false if there are more values than are indexed.
    pub(crate) fn set(&mut self, slot: Slot, facts: &Map<String, Value>) -> bool {
        let mut row = Vec::new();
        self.take_apart(None, &mut facts.iter().map(key_and_value), &mut row);
        row.sort_unstable();
        // Remove the old facts last, so that shared values are not dropped in between.
        self.remove(slot);
        for (path, value) in &row {
            let column = self.columns.entry(*path).or_default();
            column.entry(*value).or_default().insert(slot);
        }
        let whole = row.len() < MOST_VALUES;
        if !row.is_empty() {
            self.rows.insert(slot, row);
        }
        whole
    }

    fn take_apart(
        &mut self,
        parent: Option<PathId>,
        members: &mut dyn Iterator<Item = (Segment, &'_ Value)>,
        row: &mut Vec<(PathId, ValueId)>,
    ) {
        for (segment, value) in members {
            if row.len() >= MOST_VALUES {
                return;
            }
            let path = self.paths.child(parent, segment);
            match Scalar::of(value) {
                Some(scalar) => {
                    self.paths.take(path);
                    row.push((path, self.values.take(scalar)));
                }
                None => match value {
                    Value::Object(members) => {
                        let members = &mut members.iter().map(key_and_value);
                        self.take_apart(Some(path), members, row);
                    }
                    Value::Array(items) => {
                        let placed = items.iter().enumerate();
                        let placed =
                            &mut placed.map(|(place, item)| (Segment::Place(place as u32), item));
                        self.take_apart(Some(path), placed, row);
                    }
                    _ => {}
                },
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        for (path, value) in self.rows.remove(&slot).unwrap_or_default() {
            if let Some(column) = self.columns.get_mut(&path) {
                if let Some(members) = column.get_mut(&value) {
                    members.remove(slot);
                    if members.is_empty() {
                        column.remove(&value);
                    }
                }
                if column.is_empty() {
                    self.columns.remove(&path);
                }
            }
            self.values.release(value);
            self.paths.release(path);
        }
    }

    /// Returns every path that the steps lead to.
    pub(crate) fn resolve(&self, from: Option<PathId>, steps: &[Step]) -> Vec<PathId> {
        let Some((step, rest)) = steps.split_first() else {
            return from.into_iter().collect();
        };
        let children = self.paths.children(from);
        let next: Vec<PathId> = match step {
            Step::Any => children.values().copied().collect(),
            Step::Name(name) => {
                let key = children.get(&Segment::Key(Arc::from(name.as_str())));
                let place = name.parse().ok().map(Segment::Place);
                let place = place.and_then(|place| children.get(&place));
                key.into_iter().chain(place).copied().collect()
            }
        };
        next.into_iter()
            .flat_map(|path| self.resolve(Some(path), rest))
            .collect()
    }

    /// Collects the nodes with a value at the path that satisfies the matcher.
    /// Calls `spend` for each distinct value that it examines, with the value's
    /// size.
    pub(crate) fn matching<E>(
        &self,
        path: PathId,
        matcher: &Matcher,
        set: &mut NodeSet,
        spend: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(column) = self.columns.get(&path) else {
            return Ok(());
        };
        if let Some(named) = matcher.named() {
            for value in named {
                spend(1)?;
                let members = self.values.find(value).and_then(|value| column.get(&value));
                if let Some(members) = members {
                    members.add_to(set);
                }
            }
            return Ok(());
        }
        for (value, members) in column {
            let value = self.values.get(*value);
            spend(size(value))?;
            if matcher.holds(value) {
                members.add_to(set);
            }
        }
        Ok(())
    }

    /// Collects the nodes with a non-null value at the path or below it.
    pub(crate) fn present(&self, path: PathId, set: &mut NodeSet) {
        if let Some(column) = self.columns.get(&path) {
            for (value, members) in column {
                if *self.values.get(*value) != Scalar::Null {
                    members.add_to(set);
                }
            }
        }
        for child in self.paths.children(Some(path)).values() {
            self.all(*child, set);
        }
    }

    /// Collects the nodes with any value at the path or below it, including null.
    pub(crate) fn all(&self, path: PathId, set: &mut NodeSet) {
        if let Some(column) = self.columns.get(&path) {
            column.values().for_each(|members| members.add_to(set));
        }
        for child in self.paths.children(Some(path)).values() {
            self.all(*child, set);
        }
    }

    /// Collects the nodes with a value exactly at the path, including null.
    pub(crate) fn at(&self, path: PathId, set: &mut NodeSet) {
        if let Some(column) = self.columns.get(&path) {
            column.values().for_each(|members| members.add_to(set));
        }
    }

    /// Returns true if a node has a value at the path or below it.
    pub(crate) fn has(&self, slot: Slot, path: PathId) -> bool {
        let row = self.rows.get(&slot).map_or(&[][..], Vec::as_slice);
        row.iter()
            .any(|(below, _)| self.paths.is_at_or_below(*below, path))
    }

    /// Returns a node's value at the path. A value that contains others is reassembled.
    pub(crate) fn value(&self, slot: Slot, path: PathId) -> Option<Value> {
        let row = self.rows.get(&slot)?;
        if let Ok(at) = row.binary_search_by_key(&path, |(path, _)| *path) {
            return Some(self.values.get(row[at].1).to_value());
        }
        self.build_value(row, Some(path))
    }

    /// Returns all facts of a node.
    pub(crate) fn all_facts(&self, slot: Slot) -> Option<Value> {
        self.build_value(self.rows.get(&slot)?, None)
    }

    fn build_value(&self, row: &[(PathId, ValueId)], top: Option<PathId>) -> Option<Value> {
        let above = top.map_or_else(Vec::new, |top| self.paths.segments(top));
        let mut tree = Tree::default();
        let mut found = false;
        for (path, value) in row {
            if top.is_none_or(|top| *path != top && self.paths.is_at_or_below(*path, top)) {
                let segments = self.paths.segments(*path);
                tree.insert(&segments[above.len()..], self.values.get(*value));
                found = true;
            }
        }
        found.then(|| tree.into_value())
    }

    /// Returns every path at which some node has a value.
    pub(crate) fn paths_in_use(&self) -> impl Iterator<Item = PathId> {
        self.columns.keys().copied()
    }

    pub(crate) fn top_level(&self) -> impl Iterator<Item = (&Segment, PathId)> {
        self.paths
            .children(None)
            .iter()
            .map(|(name, path)| (name, *path))
    }

    pub(crate) fn segments(&self, path: PathId) -> Vec<Segment> {
        self.paths.segments(path)
    }

    /// Returns the names directly below a path.
    pub(crate) fn names_below(&self, path: Option<PathId>) -> Vec<String> {
        let children = self.paths.children(path).keys();
        let mut names: Vec<String> = children.map(Segment::to_string).collect();
        names.sort_unstable();
        names
    }

    /// Returns the numbers of distinct values and paths, which determine memory use.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.values.len(), self.paths.len())
    }
}

fn key_and_value<'a>((key, value): (&'a String, &'a Value)) -> (Segment, &'a Value) {
    (Segment::Key(Arc::from(key.as_str())), value)
}

/// Returns the cost of examining a value.
fn size(value: &Scalar) -> usize {
    match value {
        Scalar::Text(text) => 1 + text.len() / 64,
        _ => 1,
    }
}

impl std::fmt::Display for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(key) => f.write_str(key),
            Self::Place(place) => place.fmt(f),
        }
    }
}

#[derive(Default)]
struct Tree {
    value: Option<Value>,
    below: BTreeMap<Segment, Tree>,
}

impl Tree {
    fn insert(&mut self, segments: &[Segment], value: &Scalar) {
        match segments.split_first() {
            None => self.value = Some(value.to_value()),
            Some((first, rest)) => {
                let below = self.below.entry(first.clone()).or_default();
                below.insert(rest, value);
            }
        }
    }

    fn into_value(self) -> Value {
        if let Some(value) = self.value {
            return value;
        }
        let list = matches!(self.below.keys().next(), Some(Segment::Place(_)));
        let below = self.below.into_iter();
        if list {
            Value::Array(below.map(|(_, tree)| tree.into_value()).collect())
        } else {
            let members = below.map(|(name, tree)| (name.to_string(), tree.into_value()));
            Value::Object(members.collect())
        }
    }
}
