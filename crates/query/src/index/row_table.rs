//! Rows of nodes: resources, classes, reports, events.
//!
//! Equal rows are stored once, with the set of nodes that have them. A fleet of
//! similar machines has few distinct resources, and a condition is evaluated
//! once for each of those.

use std::collections::{BTreeSet, HashMap};

use bunraku_model::{ContentId, content_id_of_json};
use serde_json::{Map, Value};

use super::node_set::{Members, Slot};
use super::places::Slab;
use crate::scalar::Scalar;

pub(crate) type RowId = u32;
pub(crate) type Row = Map<String, Value>;

#[derive(Debug)]
pub(crate) struct RowEntry {
    pub(crate) row: Row,
    pub(crate) nodes: Members,
    id: ContentId,
    /// Additional occurrences per node, beyond the first.
    more: HashMap<Slot, u32>,
}

impl RowEntry {
    /// Returns an id that is equal for equal rows.
    pub(crate) fn id(&self) -> ContentId {
        self.id
    }
}

#[derive(Debug)]
pub(crate) struct RowTable {
    rows: Slab<RowEntry>,
    known: HashMap<ContentId, RowId>,
    /// Fields whose values are indexed.
    indexed: &'static [&'static str],
    by_value: HashMap<(usize, Scalar), BTreeSet<RowId>>,
}

impl RowTable {
    pub(crate) fn new(indexed: &'static [&'static str]) -> Self {
        Self {
            rows: Slab::default(),
            known: HashMap::new(),
            indexed,
            by_value: HashMap::new(),
        }
    }

    pub(crate) fn add(&mut self, slot: Slot, row: Row) -> RowId {
        let value = Value::Object(row);
        let id = content_id_of_json(&value);
        let Value::Object(row) = value else {
            unreachable!("it was just made")
        };
        let number = match self.known.get(&id) {
            Some(number) => *number,
            None => self.add_new(id, row),
        };
        let entry = self.rows.get_mut(number).expect("what is known is there");
        if entry.nodes.contains(slot) {
            *entry.more.entry(slot).or_default() += 1;
        } else {
            entry.nodes.insert(slot);
        }
        number
    }

    fn add_new(&mut self, id: ContentId, row: Row) -> RowId {
        let keys = self.keys_of(&row);
        let number = self.rows.add(RowEntry {
            row,
            nodes: Members::None,
            id,
            more: HashMap::new(),
        });
        self.known.insert(id, number);
        for key in keys {
            self.by_value.entry(key).or_default().insert(number);
        }
        number
    }

    fn keys_of(&self, row: &Row) -> Vec<(usize, Scalar)> {
        let fields = self.indexed.iter().enumerate();
        fields
            .filter_map(|(at, field)| Some((at, Scalar::of(row.get(*field)?)?)))
            .collect()
    }

    pub(crate) fn remove(&mut self, slot: Slot, number: RowId) {
        let Some(entry) = self.rows.get_mut(number) else {
            return;
        };
        if let Some(more) = entry.more.get_mut(&slot) {
            *more -= 1;
            if *more == 0 {
                entry.more.remove(&slot);
            }
            return;
        }
        entry.nodes.remove(slot);
        if entry.nodes.is_empty()
            && let Some(entry) = self.rows.remove(number)
        {
            self.known.remove(&entry.id);
            for key in self.keys_of(&entry.row) {
                if let Some(rows) = self.by_value.get_mut(&key) {
                    rows.remove(&number);
                    if rows.is_empty() {
                        self.by_value.remove(&key);
                    }
                }
            }
        }
    }

    pub(crate) fn get(&self, number: RowId) -> &RowEntry {
        self.rows.get(number).expect("it is in use")
    }

    pub(crate) fn numbers(&self) -> Vec<RowId> {
        self.rows.iter().map(|(number, _)| number).collect()
    }

    /// Returns the rows with one of these values, if the field is indexed.
    pub(crate) fn with_value(&self, field: &str, values: &[&Scalar]) -> Option<BTreeSet<RowId>> {
        let at = self.indexed.iter().position(|known| *known == field)?;
        let mut rows = BTreeSet::new();
        for value in values {
            if let Some(found) = self.by_value.get(&(at, (*value).clone())) {
                rows.extend(found);
            }
        }
        Some(rows)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}
