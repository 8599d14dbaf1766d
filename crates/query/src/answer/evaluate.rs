//! Evaluates a condition: the matching rows, and the nodes that have them.
//!
//! A condition is a set of nodes for each distinct row. The parts that depend
//! on the node alone are evaluated once, before any row. The parts that depend
//! on the row alone give all nodes or none. The rest joins sets.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::AnswerError;
use super::fuel::Fuel;
use super::show::{self, value_at};
use crate::index::{Index, NodeSet, PathId, Row, RowId, RowTable, Segment};
use crate::language::{CheckedQuery, Entity, Field, Matcher, Step, Test};
use crate::scalar::Scalar;

/// Matching rows, each with the nodes that have it.
pub(super) struct Matches {
    /// The row's number in its table, or its path among the facts; nodes have none.
    pub(super) rows: Vec<(u32, NodeSet)>,
}

impl Matches {
    pub(super) fn nodes(&self) -> NodeSet {
        let mut all = NodeSet::default();
        self.rows.iter().for_each(|(_, nodes)| all.union(nodes));
        all
    }
}

/// The nodes for which a condition holds.
#[derive(Clone)]
enum MatchingNodes {
    All,
    None,
    Some(NodeSet),
}

/// A condition in which all parts that need no row are already evaluated.
enum PreparedCondition {
    Known(MatchingNodes),
    And(Vec<PreparedCondition>),
    Or(Vec<PreparedCondition>),
    Not(Box<PreparedCondition>),
    Row(&'static str, Vec<Step>, Matcher),
    RowIsNull(&'static str, Vec<Step>),
    FactName(Matcher),
    PathMatches(Vec<regex::Regex>),
    FactValue(Vec<Step>, Matcher),
    FactValueIsNull(Vec<Step>),
    In(Vec<Field>, HashSet<Vec<Scalar>>),
}

impl PreparedCondition {
    /// Returns the cost for sorting: cheap conditions come first.
    fn cost(&self) -> u8 {
        match self {
            Self::Known(_) | Self::FactName(_) => 0,
            Self::Row(..) | Self::RowIsNull(..) | Self::PathMatches(_) => 1,
            Self::Not(_) | Self::And(_) | Self::Or(_) => 2,
            Self::FactValue(..) | Self::FactValueIsNull(_) => 3,
            Self::In(..) => 4,
        }
    }
}

/// The row that a condition is evaluated on.
#[derive(Clone, Copy)]
struct RowContext<'a> {
    key: u32,
    row: Option<&'a Row>,
}

pub(super) struct Evaluation<'a> {
    index: &'a Index,
    fuel: &'a mut Fuel,
    /// The nodes that the caller may see. `None`: all.
    within: Option<&'a NodeSet>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(index: &'a Index, fuel: &'a mut Fuel, within: Option<&'a NodeSet>) -> Self {
        Self {
            index,
            fuel,
            within,
        }
    }

    pub(super) fn matches(&mut self, query: &CheckedQuery) -> Result<Matches, AnswerError> {
        let prepared = match &query.test {
            None => PreparedCondition::Known(MatchingNodes::All),
            Some(test) => self.prepare(query.entity, test)?,
        };
        let mut rows = Vec::new();
        for (key, row) in self.candidates(query) {
            self.fuel.spend(1)?;
            let at = RowContext { key, row };
            let mut nodes = match self.truth(query.entity, &prepared, at)? {
                MatchingNodes::None => continue,
                truth => self.having(query.entity, at, truth)?,
            };
            // Here, because every query inside a query comes here too.
            if let Some(within) = self.within {
                nodes.intersect(within);
            }
            if !nodes.is_empty() {
                rows.push((key, nodes));
            }
        }
        Ok(Matches { rows })
    }

    /// Returns the rows to try: those that an index names, or all.
    fn candidates(&self, query: &CheckedQuery) -> Vec<(u32, Option<&'a Row>)> {
        let facts = &self.index.facts;
        match (query.entity, self.index.table(query.entity)) {
            (Entity::Facts, _) => facts.top_level().map(|(_, path)| (path, None)).collect(),
            (Entity::FactContents, _) => facts.paths_in_use().map(|path| (path, None)).collect(),
            (_, None) => vec![(0, None)],
            (_, Some(table)) => {
                let named = query.test.as_ref().and_then(|test| named_rows(table, test));
                let numbers = match named {
                    Some(named) => named.into_iter().collect(),
                    None => table.numbers(),
                };
                let rows = numbers.into_iter();
                rows.map(|number| (number, Some(&table.get(number).row)))
                    .collect()
            }
        }
    }

    /// Returns the nodes that have the row, of those for which the condition holds.
    fn having(
        &mut self,
        entity: Entity,
        at: RowContext<'_>,
        truth: MatchingNodes,
    ) -> Result<NodeSet, AnswerError> {
        let facts = &self.index.facts;
        let mut have = NodeSet::default();
        match (entity, self.index.table(entity)) {
            (Entity::Nodes, _) => have = self.index.all_nodes(),
            (Entity::Facts, _) => {
                if let MatchingNodes::Some(set) = &truth
                    && set.len() < 1_000
                {
                    for slot in set.iter() {
                        self.fuel.spend(1)?;
                        if facts.has(slot, at.key) {
                            have.insert(slot);
                        }
                    }
                    return Ok(have);
                }
                facts.all(at.key, &mut have);
            }
            (_, None) => facts.at(at.key, &mut have),
            (_, Some(table)) => table.get(at.key).nodes.add_to(&mut have),
        }
        self.fuel.spend(1 + have.len() / 64)?;
        if let MatchingNodes::Some(set) = truth {
            have.intersect(&set);
        }
        Ok(have)
    }

    fn prepare(&mut self, entity: Entity, test: &Test) -> Result<PreparedCondition, AnswerError> {
        Ok(match test {
            Test::And(parts) => PreparedCondition::And(self.prepare_all(entity, parts)?),
            Test::Or(parts) => PreparedCondition::Or(self.prepare_all(entity, parts)?),
            Test::Not(part) => PreparedCondition::Not(Box::new(self.prepare(entity, part)?)),
            Test::Compare(field, matcher) => self.prepare_compare(field, matcher)?,
            Test::IsNull(field) => self.prepare_is_null(field)?,
            Test::PathMatches(patterns) => PreparedCondition::PathMatches(patterns.clone()),
            Test::Having(query) => {
                PreparedCondition::Known(MatchingNodes::Some(self.matches(query)?.nodes()))
            }
            Test::In(inside) => {
                let matches = self.matches(&inside.query)?;
                let (_, rows) = show::show(self.index, &inside.query, matches, self.fuel)?;
                let keys = rows
                    .iter()
                    .filter_map(|row| row.iter().map(key_of).collect());
                self.prepare_in(&inside.fields, keys.collect())?
            }
        })
    }

    fn prepare_all(
        &mut self,
        entity: Entity,
        parts: &[Test],
    ) -> Result<Vec<PreparedCondition>, AnswerError> {
        let prepared = parts.iter().map(|part| self.prepare(entity, part));
        let mut prepared = prepared.collect::<Result<Vec<_>, _>>()?;
        prepared.sort_by_key(PreparedCondition::cost);
        Ok(prepared)
    }

    fn prepare_compare(
        &mut self,
        field: &Field,
        matcher: &Matcher,
    ) -> Result<PreparedCondition, AnswerError> {
        let mut set = NodeSet::default();
        match field {
            Field::Row(name, steps) => {
                return Ok(PreparedCondition::Row(name, steps.clone(), matcher.clone()));
            }
            Field::FactName => return Ok(PreparedCondition::FactName(matcher.clone())),
            Field::FactValue(steps) => {
                return Ok(PreparedCondition::FactValue(steps.clone(), matcher.clone()));
            }
            // No literal is equal to a list.
            Field::FactPath => return Ok(PreparedCondition::Known(MatchingNodes::None)),
            Field::Node("certname") => match matcher.named() {
                Some(named) => {
                    for name in named {
                        self.fuel.spend(1)?;
                        if let Scalar::Text(name) = name
                            && let Some(slot) = self.index.slot(name)
                        {
                            set.insert(slot);
                        }
                    }
                }
                None => {
                    for slot in self.index.slots() {
                        self.fuel.spend(1)?;
                        let name = self.index.node(slot).name.as_str();
                        if matcher.holds(&Scalar::Text(name.into())) {
                            set.insert(slot);
                        }
                    }
                }
            },
            Field::Node(name) => {
                for slot in self.index.slots() {
                    self.fuel.spend(1)?;
                    let value = self.index.node(slot).fields.get(*name);
                    let value = value.and_then(Scalar::of);
                    if value.is_some_and(|value| matcher.holds(&value)) {
                        set.insert(slot);
                    }
                }
            }
            Field::Facts(steps) => {
                for path in self.index.facts.resolve(None, steps) {
                    let spend = &mut |steps| self.fuel.spend(steps);
                    self.index.facts.matching(path, matcher, &mut set, spend)?;
                }
            }
        }
        Ok(PreparedCondition::Known(MatchingNodes::Some(set)))
    }

    fn prepare_is_null(&mut self, field: &Field) -> Result<PreparedCondition, AnswerError> {
        let mut present = NodeSet::default();
        match field {
            Field::Row(name, steps) => {
                return Ok(PreparedCondition::RowIsNull(name, steps.clone()));
            }
            Field::FactName | Field::FactPath | Field::Node("certname") => {
                return Ok(PreparedCondition::Known(MatchingNodes::None));
            }
            Field::FactValue(steps) => {
                return Ok(PreparedCondition::FactValueIsNull(steps.clone()));
            }
            Field::Node(name) => {
                for slot in self.index.slots() {
                    self.fuel.spend(1)?;
                    if self.index.node(slot).fields.contains_key(*name) {
                        present.insert(slot);
                    }
                }
            }
            Field::Facts(steps) if steps.is_empty() => {
                for (_, path) in self.index.facts.top_level() {
                    self.fuel.spend(1)?;
                    self.index.facts.all(path, &mut present);
                }
            }
            Field::Facts(steps) => {
                for path in self.index.facts.resolve(None, steps) {
                    self.fuel.spend(1)?;
                    self.index.facts.present(path, &mut present);
                }
            }
        }
        Ok(PreparedCondition::Known(
            self.not(MatchingNodes::Some(present)),
        ))
    }

    fn prepare_in(
        &mut self,
        fields: &[Field],
        keys: HashSet<Vec<Scalar>>,
    ) -> Result<PreparedCondition, AnswerError> {
        if let [field @ (Field::Node(_) | Field::Facts(_) | Field::Row(..))] = fields {
            let wanted = keys.into_iter().flatten().collect();
            return self.prepare_compare(field, &Matcher::OneOf(wanted));
        }
        Ok(PreparedCondition::In(fields.to_vec(), keys))
    }

    fn truth(
        &mut self,
        entity: Entity,
        prepared: &PreparedCondition,
        at: RowContext<'_>,
    ) -> Result<MatchingNodes, AnswerError> {
        Ok(match prepared {
            PreparedCondition::Known(truth) => truth.clone(),
            PreparedCondition::Not(part) => {
                let inside = self.truth(entity, part, at)?;
                self.not(inside)
            }
            PreparedCondition::And(parts) => {
                let mut all = MatchingNodes::All;
                for part in parts {
                    if matches!(all, MatchingNodes::None) {
                        break;
                    }
                    all = and(all, self.truth(entity, part, at)?);
                }
                all
            }
            PreparedCondition::Or(parts) => {
                let mut any = MatchingNodes::None;
                for part in parts {
                    if matches!(any, MatchingNodes::All) {
                        break;
                    }
                    any = or(any, self.truth(entity, part, at)?);
                }
                any
            }
            PreparedCondition::Row(name, steps, matcher) => {
                let values = at.row.and_then(|row| row.get(*name));
                of_row(self.any_value(values, steps, matcher)?)
            }
            PreparedCondition::RowIsNull(name, steps) => {
                let value = at.row.and_then(|row| row.get(*name));
                let mut found = false;
                each_value(value, steps, &mut |value| found |= !value.is_null());
                of_row(!found)
            }
            PreparedCondition::FactName(matcher) => of_row(matcher.holds(&self.fact_name(at.key))),
            PreparedCondition::PathMatches(patterns) => {
                of_row(self.path_matches(at.key, patterns)?)
            }
            PreparedCondition::FactValue(steps, matcher) => {
                let mut set = NodeSet::default();
                for path in self.index.facts.resolve(Some(at.key), steps) {
                    let spend = &mut |steps| self.fuel.spend(steps);
                    self.index.facts.matching(path, matcher, &mut set, spend)?;
                }
                MatchingNodes::Some(set)
            }
            PreparedCondition::FactValueIsNull(steps) => {
                let mut present = NodeSet::default();
                for path in self.index.facts.resolve(Some(at.key), steps) {
                    self.fuel.spend(1)?;
                    self.index.facts.present(path, &mut present);
                }
                self.not(MatchingNodes::Some(present))
            }
            PreparedCondition::In(fields, keys) => self.in_keys(entity, fields, keys, at)?,
        })
    }

    fn any_value(
        &mut self,
        value: Option<&Value>,
        steps: &[Step],
        matcher: &Matcher,
    ) -> Result<bool, AnswerError> {
        let (mut holds, mut size) = (false, 0);
        each_value(value, steps, &mut |value| {
            size += 1 + value.as_str().map_or(0, str::len) / 64;
            holds |= Scalar::of(value).is_some_and(|value| matcher.holds(&value));
        });
        self.fuel.spend(size)?;
        Ok(holds)
    }

    fn fact_name(&self, path: PathId) -> Scalar {
        let segments = self.index.facts.segments(path);
        let name = segments.first().map(Segment::to_string);
        Scalar::Text(name.unwrap_or_default().into())
    }

    fn path_matches(
        &mut self,
        path: PathId,
        patterns: &[regex::Regex],
    ) -> Result<bool, AnswerError> {
        let segments = self.index.facts.segments(path);
        self.fuel.spend(segments.len())?;
        let mut pairs = patterns.iter().zip(&segments);
        Ok(patterns.len() == segments.len()
            && pairs.all(|(pattern, segment)| pattern.is_match(&segment.to_string())))
    }

    /// Tests node by node. No other test has to.
    fn in_keys(
        &mut self,
        entity: Entity,
        fields: &[Field],
        keys: &HashSet<Vec<Scalar>>,
        at: RowContext<'_>,
    ) -> Result<MatchingNodes, AnswerError> {
        let have = self.having(entity, at, MatchingNodes::All)?;
        let mut set = NodeSet::default();
        for slot in have.iter() {
            self.fuel.spend(fields.len())?;
            let values = fields.iter().map(|field| {
                let value = value_at(self.index, entity, field, slot, at.key);
                key_of(&value)
            });
            let key: Option<Vec<Scalar>> = values.collect();
            if key.is_some_and(|key| keys.contains(&key)) {
                set.insert(slot);
            }
        }
        Ok(MatchingNodes::Some(set))
    }

    fn not(&self, truth: MatchingNodes) -> MatchingNodes {
        match truth {
            MatchingNodes::All => MatchingNodes::None,
            MatchingNodes::None => MatchingNodes::All,
            MatchingNodes::Some(set) => {
                let mut rest = self.index.all_nodes();
                rest.subtract(&set);
                MatchingNodes::Some(rest)
            }
        }
    }
}

fn of_row(holds: bool) -> MatchingNodes {
    if holds {
        MatchingNodes::All
    } else {
        MatchingNodes::None
    }
}

fn and(left: MatchingNodes, right: MatchingNodes) -> MatchingNodes {
    match (left, right) {
        (MatchingNodes::None, _) | (_, MatchingNodes::None) => MatchingNodes::None,
        (MatchingNodes::All, other) | (other, MatchingNodes::All) => other,
        (MatchingNodes::Some(mut left), MatchingNodes::Some(right)) => {
            left.intersect(&right);
            if left.is_empty() {
                MatchingNodes::None
            } else {
                MatchingNodes::Some(left)
            }
        }
    }
}

fn or(left: MatchingNodes, right: MatchingNodes) -> MatchingNodes {
    match (left, right) {
        (MatchingNodes::All, _) | (_, MatchingNodes::All) => MatchingNodes::All,
        (MatchingNodes::None, other) | (other, MatchingNodes::None) => other,
        (MatchingNodes::Some(mut left), MatchingNodes::Some(right)) => {
            left.union(&right);
            MatchingNodes::Some(left)
        }
    }
}

/// Visits every value that the steps lead to.
pub(super) fn each_value(value: Option<&Value>, steps: &[Step], visit: &mut impl FnMut(&Value)) {
    let Some(value) = value else {
        return;
    };
    let Some((step, rest)) = steps.split_first() else {
        return visit(value);
    };
    match (value, step) {
        (Value::Object(members), Step::Name(name)) => each_value(members.get(name), rest, visit),
        (Value::Object(members), Step::Any) => {
            for member in members.values() {
                each_value(Some(member), rest, visit);
            }
        }
        (Value::Array(items), Step::Name(name)) => {
            let item = name.parse().ok().and_then(|at: usize| items.get(at));
            each_value(item, rest, visit);
        }
        (Value::Array(items), Step::Any) => {
            for item in items {
                each_value(Some(item), rest, visit);
            }
        }
        _ => {}
    }
}

/// Returns a key that two values share exactly when they are equal. Null equals nothing.
fn key_of(value: &Value) -> Option<Scalar> {
    match value {
        Value::Null => None,
        value => Some(Scalar::of(value).unwrap_or_else(|| {
            let text = bunraku_model::canonical_json(value);
            Scalar::Text(format!("\u{0}{text}").into())
        })),
    }
}

/// Returns the rows that can match, if indexed fields narrow them down.
fn named_rows(table: &RowTable, test: &Test) -> Option<BTreeSet<RowId>> {
    match test {
        Test::Compare(Field::Row(name, steps), matcher) if steps.is_empty() => {
            table.with_value(name, &matcher.named()?)
        }
        Test::And(parts) => {
            let named = parts.iter().filter_map(|part| named_rows(table, part));
            named.min_by_key(BTreeSet::len)
        }
        Test::Or(parts) => {
            let mut all = BTreeSet::new();
            for part in parts {
                all.extend(named_rows(table, part)?);
            }
            Some(all)
        }
        _ => None,
    }
}
