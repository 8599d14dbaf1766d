//! Shows the matching rows: groups, order, pages, columns.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::AnswerError;
use super::evaluate::{Matches, each_value};
use super::fuel::Fuel;
use crate::index::{Index, Segment, Slot};
use crate::language::{CheckedQuery, Column, Entity, Field, Function, Order};
use crate::scalar::total_order;

type Rows = Vec<Vec<Value>>;

pub(super) fn show(
    index: &Index,
    query: &CheckedQuery,
    matches: Matches,
    fuel: &mut Fuel,
) -> Result<(Vec<String>, Rows), AnswerError> {
    let labels = query.columns.iter().map(|column| column.label.clone());
    let rows = match &query.group_by {
        None => plain_rows(index, query, matches, fuel)?,
        Some(fields) => grouped_rows(index, query, fields, matches, fuel)?,
    };
    Ok((labels.collect(), rows))
}

/// Returns the nodes of the rows that remain after order, offset and limit.
pub(super) fn pages(
    index: &Index,
    query: &CheckedQuery,
    matches: Matches,
    fuel: &mut Fuel,
) -> Result<impl Iterator<Item = Slot>, AnswerError> {
    let pairs = ordered(index, query, matches, fuel)?;
    Ok(page(query, pairs).into_iter().map(|(_, slot)| slot))
}

fn plain_rows(
    index: &Index,
    query: &CheckedQuery,
    matches: Matches,
    fuel: &mut Fuel,
) -> Result<Rows, AnswerError> {
    let pairs = page(query, ordered(index, query, matches, fuel)?);
    fuel.rows(pairs.len())?;
    let mut rows = Vec::with_capacity(pairs.len());
    for (key, slot) in pairs {
        let mut row = Vec::with_capacity(query.columns.len());
        for column in &query.columns {
            let field = column.field.as_ref().expect("only functions have none");
            let value = value_at(index, query.entity, field, slot, key);
            fuel.show(weight(&value))?;
            row.push(value);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn page<T>(query: &CheckedQuery, items: Vec<T>) -> Vec<T> {
    let limit = query.limit.unwrap_or(usize::MAX);
    items.into_iter().skip(query.offset).take(limit).collect()
}

/// Returns every row of every node, in an order that depends only on their contents.
fn ordered(
    index: &Index,
    query: &CheckedQuery,
    matches: Matches,
    fuel: &mut Fuel,
) -> Result<Vec<(u32, Slot)>, AnswerError> {
    let found: usize = matches.rows.iter().map(|(_, nodes)| nodes.len()).sum();
    // One page needs the order of all rows.
    fuel.rows(found / 10)?;
    fuel.spend(found)?;
    let by_name: HashMap<Slot, usize> = index.slots().zip(0..).collect();
    let by_row = row_order(index, query.entity, &matches);
    let pairs = matches.rows.iter().flat_map(|(key, nodes)| {
        let key = *key;
        nodes.iter().map(move |slot| (key, slot))
    });
    let mut pairs: Vec<(u32, Slot)> = pairs.collect();
    pairs.sort_unstable_by_key(|(key, slot)| (by_name[slot], by_row[key]));
    if query.order_by.is_empty() {
        return Ok(pairs);
    }
    fuel.spend(found.saturating_mul(query.order_by.len()))?;
    let keyed = pairs.into_iter().map(|(key, slot)| {
        let values = query.order_by.iter().map(|(order, _)| {
            let field = match order {
                Order::Field(field) => Some(field),
                Order::Column(at) => query.columns[*at].field.as_ref(),
            };
            let field = field.expect("only groups are ordered by functions");
            value_at(index, query.entity, field, slot, key)
        });
        (values.collect::<Vec<Value>>(), (key, slot))
    });
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_by(|left, right| compare(&left.0, &right.0, query));
    Ok(keyed.into_iter().map(|(_, pair)| pair).collect())
}

fn compare(left: &[Value], right: &[Value], query: &CheckedQuery) -> std::cmp::Ordering {
    let pairs = left.iter().zip(right).zip(&query.order_by);
    let compared = pairs.map(|((left, right), (_, descending))| {
        let order = total_order(left, right);
        if *descending { order.reverse() } else { order }
    });
    compared.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
}

/// Returns the position of each distinct row among those of one node.
fn row_order(index: &Index, entity: Entity, matches: &Matches) -> HashMap<u32, usize> {
    let mut keys: Vec<u32> = matches.rows.iter().map(|(key, _)| *key).collect();
    match index.table(entity) {
        Some(table) => keys.sort_by_cached_key(|key| {
            let entry = table.get(*key);
            let fields = entity.order().iter();
            let values = fields.map(|field| entry.row.get(*field).cloned().unwrap_or_default());
            (values.map(OrderedValue).collect::<Vec<_>>(), entry.id())
        }),
        None if entity == Entity::Nodes => {}
        None => keys.sort_by_cached_key(|key| index.facts.segments(*key)),
    }
    keys.into_iter().zip(0..).collect()
}

struct OrderedValue(Value);

impl PartialEq for OrderedValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OrderedValue {}

impl PartialOrd for OrderedValue {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedValue {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        total_order(&self.0, &other.0)
    }
}

/// Returns the value of a field of one row of one node.
pub(super) fn value_at(
    index: &Index,
    entity: Entity,
    field: &Field,
    slot: Slot,
    key: u32,
) -> Value {
    match field {
        Field::Node("certname") => Value::from(index.node(slot).name.as_str()),
        Field::Node(name) => {
            let value = index.node(slot).fields.get(*name);
            value.cloned().unwrap_or_default()
        }
        Field::Facts(steps) if steps.is_empty() => index.facts.all_facts(slot).unwrap_or_default(),
        Field::Facts(steps) => {
            let paths = index.facts.resolve(None, steps);
            let mut values = paths
                .into_iter()
                .filter_map(|path| index.facts.value(slot, path));
            values.next().unwrap_or_default()
        }
        Field::FactValue(steps) => {
            let paths = index.facts.resolve(Some(key), steps);
            let mut values = paths
                .into_iter()
                .filter_map(|path| index.facts.value(slot, path));
            values.next().unwrap_or_default()
        }
        Field::FactName => {
            let segments = index.facts.segments(key);
            segments.first().map(Segment::to_string).into()
        }
        Field::FactPath => {
            let segments = index.facts.segments(key).into_iter();
            let steps = segments.map(|segment| match segment {
                Segment::Key(key) => Value::from(key.as_ref()),
                Segment::Place(place) => Value::from(place),
            });
            Value::Array(steps.collect())
        }
        Field::Row(name, steps) => {
            let Some(table) = index.table(entity) else {
                return Value::Null;
            };
            let mut found = Value::Null;
            each_value(table.get(key).row.get(*name), steps, &mut |value| {
                found = value.clone();
            });
            found
        }
    }
}

/// Returns true if the field is the same for every node that has the row.
fn is_of_row(field: &Field) -> bool {
    matches!(field, Field::Row(..) | Field::FactName | Field::FactPath)
}

/// The state of an aggregate function for a group.
#[derive(Clone, Default)]
struct Aggregate {
    count: usize,
    sum: f64,
    whole: Option<i64>,
    numbers: usize,
    least: Option<Value>,
    most: Option<Value>,
}

impl Aggregate {
    fn take(&mut self, value: &Value, times: usize) {
        if value.is_null() {
            return;
        }
        self.count += times;
        if let Some(number) = value.as_f64() {
            self.sum += number * times as f64;
            let before = if self.numbers == 0 {
                Some(0)
            } else {
                self.whole
            };
            let added = value.as_i64().and_then(|one| one.checked_mul(times as i64));
            self.whole = before
                .zip(added)
                .and_then(|(before, added)| before.checked_add(added));
            self.numbers += times;
        }
        let less = |known: &Value| total_order(value, known).is_lt();
        let more = |known: &Value| total_order(value, known).is_gt();
        if self.least.as_ref().is_none_or(less) {
            self.least = Some(value.clone());
        }
        if self.most.as_ref().is_none_or(more) {
            self.most = Some(value.clone());
        }
    }

    fn result(&self, function: Function) -> Value {
        match function {
            Function::Count => Value::from(self.count),
            Function::Sum => match (self.numbers, self.whole) {
                (0, _) => Value::Null,
                (_, Some(whole)) => Value::from(whole),
                _ => Value::from(self.sum),
            },
            Function::Average if self.numbers == 0 => Value::Null,
            Function::Average => Value::from(self.sum / self.numbers as f64),
            Function::Least => self.least.clone().unwrap_or_default(),
            Function::Most => self.most.clone().unwrap_or_default(),
        }
    }
}

struct Group {
    values: Vec<Value>,
    tallies: Vec<Aggregate>,
}

fn grouped_rows(
    index: &Index,
    query: &CheckedQuery,
    fields: &[Field],
    matches: Matches,
    fuel: &mut Fuel,
) -> Result<Rows, AnswerError> {
    let columns = query
        .columns
        .iter()
        .filter_map(|column| column.field.as_ref());
    let of_rows = fields.iter().chain(columns).all(is_of_row);
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    // Without groups there is a single group of all rows, even if there are no rows.
    if fields.is_empty() {
        groups.insert(String::new(), new_group(Vec::new(), query));
    }
    for (key, nodes) in &matches.rows {
        // If all nodes of a row are alike, one represents all of them.
        let (each, times) = if of_rows {
            (1, nodes.len())
        } else {
            (usize::MAX, 1)
        };
        for slot in nodes.iter().take(each) {
            fuel.spend(1 + query.columns.len() + fields.len())?;
            let at = |field: &Field| value_at(index, query.entity, field, slot, *key);
            let values: Vec<Value> = fields.iter().map(at).collect();
            let name = if fields.is_empty() {
                String::new()
            } else {
                bunraku_model::canonical_json(&Value::Array(values.clone()))
            };
            let group = groups
                .entry(name)
                .or_insert_with(|| new_group(values, query));
            for (column, tally) in query.columns.iter().zip(&mut group.tallies) {
                match &column.field {
                    Some(field) if column.function.is_some() => tally.take(&at(field), times),
                    _ => tally.count += times,
                }
            }
        }
        fuel.rows(groups.len())?;
    }
    finish(query, fields, groups, fuel)
}

fn new_group(values: Vec<Value>, query: &CheckedQuery) -> Group {
    Group {
        values,
        tallies: vec![Aggregate::default(); query.columns.len()],
    }
}

fn finish(
    query: &CheckedQuery,
    fields: &[Field],
    groups: BTreeMap<String, Group>,
    fuel: &mut Fuel,
) -> Result<Rows, AnswerError> {
    let shown = |column: &Column, tally: &Aggregate, values: &[Value]| match column.function {
        Some(function) => tally.result(function),
        None => {
            let at = fields
                .iter()
                .position(|field| Some(field) == column.field.as_ref());
            values[at.expect("a plain column is what is grouped by")].clone()
        }
    };
    let rows = groups.into_values().map(|group| {
        let columns = query.columns.iter().zip(&group.tallies);
        columns
            .map(|(column, tally)| shown(column, tally, &group.values))
            .collect::<Vec<Value>>()
    });
    let mut rows: Rows = rows.collect();
    let keys = |row: &Vec<Value>| {
        let orders = query.order_by.iter().filter_map(|(order, _)| match order {
            Order::Column(at) => Some(row[*at].clone()),
            Order::Field(_) => None,
        });
        orders.collect::<Vec<Value>>()
    };
    rows.sort_by(|left, right| compare(&keys(left), &keys(right), query));
    let rows = page(query, rows);
    for value in rows.iter().flatten() {
        fuel.show(weight(value))?;
    }
    Ok(rows)
}

/// Returns the approximate size of a value in JSON, in bytes.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => 2 + items.iter().map(weight).sum::<usize>(),
        Value::Object(members) => {
            let each = members
                .iter()
                .map(|(name, value)| name.len() + 4 + weight(value));
            2 + each.sum::<usize>()
        }
    }
}
