//! Lists and maps that `{% do x.append(…) %}` and `{% do x.update(…) %}` change.
//!
//! The template engine's own are immutable. Values become these at the places
//! where a template gets hold of them: assignments, arguments of the methods
//! here, and the variables that a template is given. As in Python, two names
//! may mean the same list.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use serde_json::{Map, Value as Json};

/// A list that is extended by itself must have an end.
const MOST_ITEMS: usize = 5_000_000;

#[derive(Debug, Default)]
pub(crate) struct List(Mutex<Vec<Value>>);

/// In the order of insertion, as Python's.
#[derive(Debug, Default)]
pub(crate) struct Dict(Mutex<Entries>);

#[derive(Debug, Default, Clone)]
struct Entries {
    pairs: Vec<(Value, Value)>,
    /// Positions by text, for maps that are large.
    by_text: std::collections::HashMap<String, usize>,
}

impl Entries {
    fn position(&self, key: &Value) -> Option<usize> {
        // `ports[80]` finds the key 80 of a YAML map, whose keys are text here.
        let position = match key.as_str() {
            Some(text) => self.by_text.get(text),
            None => self.by_text.get(&super::python::text(key)),
        };
        position.copied()
    }

    fn insert(&mut self, key: Value, value: Value) {
        match self.position(&key) {
            Some(position) => self.pairs[position].1 = value,
            None => {
                self.by_text
                    .insert(super::python::text(&key), self.pairs.len());
                self.pairs.push((key, value));
            }
        }
    }

    fn remove(&mut self, key: &Value) -> Option<Value> {
        let position = self.position(key)?;
        let (_, value) = self.pairs.remove(position);
        self.by_text = (self.pairs.iter().enumerate())
            .map(|(at, (key, _))| (super::python::text(key), at))
            .collect();
        Some(value)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl List {
    pub(crate) fn value(items: impl IntoIterator<Item = Value>) -> Value {
        Value::from_object(Self(Mutex::new(items.into_iter().collect())))
    }
}

impl Dict {
    pub(crate) fn value(pairs: impl IntoIterator<Item = (Value, Value)>) -> Value {
        let mut entries = Entries::default();
        for (key, value) in pairs {
            entries.insert(key, value);
        }
        Value::from_object(Self(Mutex::new(entries)))
    }

    pub(crate) fn set(&self, key: Value, value: Value) {
        lock(&self.0).insert(key, value);
    }
}

/// A value with changeable lists and maps in place of the engine's own.
pub(crate) fn owned(value: &Value) -> Value {
    let Some(object) = value.as_object() else {
        return value.clone();
    };
    if object.downcast_ref::<List>().is_some() || object.downcast_ref::<Dict>().is_some() {
        return value.clone();
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => match value.try_iter() {
            Ok(items) => List::value(items.map(|item| owned(&item))),
            Err(_) => value.clone(),
        },
        ValueKind::Map if is_plain_map(object.type_name()) => {
            let keys = value.try_iter().into_iter().flatten();
            Dict::value(keys.map(|key| {
                let item = value.get_item(&key).unwrap_or_default();
                (key, owned(&item))
            }))
        }
        _ => value.clone(),
    }
}

/// Whether an object is a map literal and not a module, a namespace or such.
fn is_plain_map(type_name: &str) -> bool {
    ["IndexMap<", "BTreeMap<", "HashMap<"]
        .iter()
        .any(|known| type_name.contains(known))
}

pub(crate) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => List::value(items.iter().map(from_json)),
        Json::Object(members) => Dict::value(
            members
                .iter()
                .map(|(key, member)| (Value::from(key.as_str()), from_json(member))),
        ),
    }
}

pub(crate) fn to_json(value: &Value) -> Json {
    deep_json(value, 0)
}

fn deep_json(value: &Value, depth: usize) -> Json {
    if depth > 128 {
        return Json::Null;
    }
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => Json::Null,
        ValueKind::Bool => Json::Bool(value.is_true()),
        ValueKind::Number => {
            if let Some(number) = value.as_i64() {
                Json::from(number)
            } else {
                f64::try_from(value.clone())
                    .ok()
                    .and_then(serde_json::Number::from_f64)
                    .map_or(Json::Null, Json::Number)
            }
        }
        ValueKind::Seq | ValueKind::Iterable => value
            .try_iter()
            .into_iter()
            .flatten()
            .map(|item| deep_json(&item, depth + 1))
            .collect(),
        ValueKind::Map => {
            let mut members = Map::new();
            for key in value.try_iter().into_iter().flatten() {
                let member = value.get_item(&key).unwrap_or_default();
                members.insert(super::python::text(&key), deep_json(&member, depth + 1));
            }
            Json::Object(members)
        }
        _ => Json::from(super::python::text(value)),
    }
}

fn index_of(index: &Value, length: usize) -> Option<usize> {
    let index = index.as_i64()?;
    let index = if index < 0 {
        index + length as i64
    } else {
        index
    };
    usize::try_from(index).ok().filter(|index| *index < length)
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let items = lock(&self.0);
        index_of(key, items.len()).map(|index| items[index].clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(lock(&self.0).clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(lock(&self.0).len())
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let none = Ok(Value::from(()));
        match method {
            "append" => {
                let (item,): (&Value,) = from_args(args)?;
                let item = owned(item);
                lock(&self.0).push(item);
                none
            }
            "extend" => {
                let (more,): (&Value,) = from_args(args)?;
                let more: Vec<Value> = more.try_iter()?.map(|item| owned(&item)).collect();
                let mut items = lock(&self.0);
                if items.len() + more.len() > MOST_ITEMS {
                    return Err(Error::new(
                        ErrorKind::OutOfFuel,
                        "the template makes a list that is too long",
                    ));
                }
                items.extend(more);
                none
            }
            "insert" => {
                let (at, item): (i64, &Value) = from_args(args)?;
                let item = owned(item);
                let mut items = lock(&self.0);
                let length = items.len() as i64;
                let at = if at < 0 { at + length } else { at }.clamp(0, length);
                items.insert(at as usize, item);
                none
            }
            "pop" => {
                let (at,): (Option<&Value>,) = from_args(args)?;
                let mut items = lock(&self.0);
                let at = match at {
                    None => items.len().checked_sub(1),
                    Some(at) => index_of(at, items.len()),
                };
                let at = at.ok_or_else(|| invalid("pop index out of range"))?;
                Ok(items.remove(at))
            }
            "remove" => {
                let (item,): (&Value,) = from_args(args)?;
                let items = lock(&self.0).clone();
                let at = items.iter().position(|known| known == item);
                let at = at.ok_or_else(|| invalid("list.remove(x): x not in list"))?;
                lock(&self.0).remove(at);
                none
            }
            "index" => {
                let (item,): (&Value,) = from_args(args)?;
                let items = lock(&self.0).clone();
                let at = items.iter().position(|known| known == item);
                at.map(Value::from)
                    .ok_or_else(|| invalid("the value is not in the list"))
            }
            "count" => {
                let (item,): (&Value,) = from_args(args)?;
                let items = lock(&self.0).clone();
                Ok(Value::from(
                    items.iter().filter(|known| *known == item).count(),
                ))
            }
            "reverse" => {
                lock(&self.0).reverse();
                none
            }
            "sort" => {
                let mut items = lock(&self.0).clone();
                items.sort();
                *lock(&self.0) = items;
                none
            }
            "clear" => {
                lock(&self.0).clear();
                none
            }
            "copy" => Ok(Self::value(lock(&self.0).clone())),
            _ => Err(unknown("list", method)),
        }
    }
}

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let entries = lock(&self.0);
        entries.position(key).map(|at| entries.pairs[at].1.clone())
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let entries = lock(&self.0);
        entries
            .by_text
            .get(key)
            .map(|at| entries.pairs[*at].1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(
            lock(&self.0)
                .pairs
                .iter()
                .map(|(key, _)| key.clone())
                .collect(),
        )
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(lock(&self.0).pairs.len())
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let none = Value::from(());
        match method {
            "get" => {
                let (key, default): (&Value, Option<Value>) = from_args(args)?;
                Ok(self.get_value(key).or(default).unwrap_or(none))
            }
            "items" | "iteritems" => {
                Ok(List::value(lock(&self.0).pairs.iter().map(
                    |(key, value)| Value::from(vec![key.clone(), value.clone()]),
                )))
            }
            "keys" | "iterkeys" => Ok(List::value(
                lock(&self.0).pairs.iter().map(|(key, _)| key.clone()),
            )),
            "values" | "itervalues" => Ok(List::value(
                lock(&self.0).pairs.iter().map(|(_, value)| value.clone()),
            )),
            "update" => {
                let (other, named): (Option<&Value>, Kwargs) = from_args(args)?;
                for (key, value) in pairs_of(other)? {
                    self.set(key, owned(&value));
                }
                for name in named.args() {
                    self.set(Value::from(name), owned(&named.get::<Value>(name)?));
                }
                Ok(none)
            }
            "setdefault" => {
                let (key, default): (&Value, Option<&Value>) = from_args(args)?;
                if let Some(known) = self.get_value(key) {
                    return Ok(known);
                }
                let value = default.map_or(none, owned);
                self.set(key.clone(), value.clone());
                Ok(value)
            }
            "pop" => {
                let (key, default): (&Value, Option<Value>) = from_args(args)?;
                let removed = lock(&self.0).remove(key);
                removed
                    .or(default)
                    .ok_or_else(|| invalid(format!("there is no key {key}")))
            }
            "clear" => {
                *lock(&self.0) = Entries::default();
                Ok(none)
            }
            "copy" => Ok(Value::from_object(Self(Mutex::new(lock(&self.0).clone())))),
            "has_key" => {
                let (key,): (&Value,) = from_args(args)?;
                Ok(Value::from(self.get_value(key).is_some()))
            }
            _ => Err(unknown("map", method)),
        }
    }
}

fn pairs_of(other: Option<&Value>) -> Result<Vec<(Value, Value)>, Error> {
    let Some(other) = other else {
        return Ok(Vec::new());
    };
    if other.kind() == ValueKind::Map {
        return other
            .try_iter()?
            .map(|key| Ok((key.clone(), other.get_item(&key)?)))
            .collect();
    }
    other
        .try_iter()?
        .map(|pair| Ok((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?)))
        .collect()
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

fn unknown(of: &str, method: &str) -> Error {
    Error::new(
        ErrorKind::UnknownMethod,
        format!("{of} has no method named {method}"),
    )
}
