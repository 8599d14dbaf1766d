//! Mutable lists and maps, for `{% do x.append(…) %}` and `{% do x.update(…) %}`.
//!
//! The template engine's own values are immutable. They are converted to these wherever a template
//! gets hold of them: assignments, arguments of the methods here, and the variables of a template.
//! As in Python, two names may refer to the same list.

use std::cell::Cell;
use std::cmp::Ordering as CmpOrdering;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minijinja::value::{DynObject, Enumerator, Kwargs, Object, ObjectRepr, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// The maximum number of items in one list.
const MOST_ITEMS: usize = 5_000_000;
/// The maximum nesting of lists and maps that a template may build.
pub(crate) const DEEPEST: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct List {
    items: Mutex<Vec<Value>>,
    height: Height,
}

/// A map in insertion order, like Python's.
#[derive(Debug, Default)]
pub(crate) struct Dict {
    entries: Mutex<Entries>,
    height: Height,
    /// Salt's YAML keeps the order of this map. It sorts the keys of all others.
    is_ordered: bool,
}

/// The levels of lists and maps in a container, including itself, at the time of the last
/// insertion. A container that grows after it was inserted into another one does not raise the
/// other's height: code that walks values stops at [`DEEPEST`] on its own, and dropping does not
/// recurse.
#[derive(Debug, Default)]
struct Height(AtomicUsize);

impl Height {
    fn raise_above(&self, item: &Value) {
        self.0.fetch_max(height(item) + 1, Ordering::Relaxed);
    }
}

/// Returns the levels of lists and maps in a value; 0 for a scalar.
fn height(value: &Value) -> usize {
    let Some(object) = value.as_object() else {
        return 0;
    };
    if let Some(list) = object.downcast_ref::<List>() {
        return list.height.0.load(Ordering::Relaxed).max(1);
    }
    if let Some(dict) = object.downcast_ref::<Dict>() {
        return dict.height.0.load(Ordering::Relaxed).max(1);
    }
    0
}

/// Refuses a value that nests deeper than [`DEEPEST`].
pub(crate) fn within_depth(value: Value) -> Result<Value, Error> {
    if height(&value) > DEEPEST {
        return Err(Error::new(
            ErrorKind::OutOfFuel,
            format!("the template nests lists and maps deeper than {DEEPEST} levels"),
        ));
    }
    Ok(value)
}

/// Drops containers one by one. A recursive drop of a chain of lists would need a stack as deep as
/// the chain is long.
fn drop_flat(values: &mut Vec<Value>) {
    while let Some(value) = values.pop() {
        let list = value.downcast_object::<List>();
        let dict = value.downcast_object::<Dict>();
        drop(value);
        if let Some(mut list) = list.and_then(Arc::into_inner) {
            values.append(list.items.get_mut().unwrap_or_else(PoisonError::into_inner));
        }
        if let Some(mut dict) = dict.and_then(Arc::into_inner) {
            let entries = dict
                .entries
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            values.extend(
                entries
                    .pairs
                    .drain(..)
                    .flat_map(|(key, value)| [key, value]),
            );
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let items = self.items.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop_flat(&mut std::mem::take(items));
    }
}

impl Drop for Dict {
    fn drop(&mut self) {
        let entries = self
            .entries
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let mut values = entries
            .pairs
            .drain(..)
            .flat_map(|(key, value)| [key, value])
            .collect();
        drop_flat(&mut values);
    }
}

#[derive(Debug, Default, Clone)]
struct Entries {
    pairs: Vec<(Value, Value)>,
    /// The positions by text, for large maps.
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
        let items: Vec<Value> = items.into_iter().collect();
        let list = Self::default();
        for item in &items {
            list.height.raise_above(item);
        }
        *lock(&list.items) = items;
        Value::from_object(list)
    }
}

impl Dict {
    pub(crate) fn value(pairs: impl IntoIterator<Item = (Value, Value)>) -> Value {
        let dict = Self::default();
        for (key, value) in pairs {
            dict.set(key, value);
        }
        Value::from_object(dict)
    }

    /// Creates a map that keeps its order in YAML, like Python's `OrderedDict`.
    pub(crate) fn ordered(pairs: impl IntoIterator<Item = (Value, Value)>) -> Value {
        let dict = Self {
            entries: Mutex::default(),
            height: Height::default(),
            is_ordered: true,
        };
        for (key, value) in pairs {
            dict.set(key, value);
        }
        Value::from_object(dict)
    }

    /// Creates a map that keeps its order in YAML if another one does.
    pub(crate) fn like(other: &Value, pairs: impl IntoIterator<Item = (Value, Value)>) -> Value {
        if is_ordered(other) {
            Self::ordered(pairs)
        } else {
            Self::value(pairs)
        }
    }

    pub(crate) fn set(&self, key: Value, value: Value) {
        self.height.raise_above(&value);
        lock(&self.entries).insert(key, value);
    }
}

pub(crate) fn is_ordered(value: &Value) -> bool {
    let dict = value.downcast_object::<Dict>();
    dict.is_some_and(|dict| dict.is_ordered)
}

/// Returns the value with mutable lists and maps in place of the engine's own.
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

/// Returns true if an object is a map literal and not a module, a namespace or similar.
fn is_plain_map(type_name: &str) -> bool {
    ["IndexMap<", "BTreeMap<", "HashMap<"]
        .iter()
        .any(|known| type_name.contains(known))
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

thread_local! {
    /// The depth of the current comparison.
    static COMPARED: Cell<usize> = const { Cell::new(0) };
}

/// Compares two containers. At [`DEEPEST`] levels they count as different, in the order of their
/// addresses.
fn bounded_cmp<T>(
    one: &Arc<T>,
    other: &T,
    compare: impl FnOnce() -> CmpOrdering,
) -> Option<CmpOrdering> {
    let address = |of: &T| std::ptr::from_ref(of).addr();
    let by_address = address(one).cmp(&address(other));
    if by_address.is_eq() {
        return Some(by_address);
    }
    let depth = COMPARED.get();
    if depth > DEEPEST {
        return Some(by_address);
    }
    COMPARED.set(depth + 1);
    let answer = compare();
    COMPARED.set(depth);
    Some(answer)
}

impl Object for List {
    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<CmpOrdering> {
        let other = other.downcast_ref::<Self>()?;
        bounded_cmp(self, other, || {
            let (one, other) = (lock(&self.items).clone(), lock(&other.items).clone());
            one.cmp(&other)
        })
    }

    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let items = lock(&self.items);
        index_of(key, items.len()).map(|index| items[index].clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(lock(&self.items).clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(lock(&self.items).len())
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
                let item = within_depth(owned(item))?;
                self.height.raise_above(&item);
                lock(&self.items).push(item);
                none
            }
            "extend" => {
                let (more,): (&Value,) = from_args(args)?;
                let more: Vec<Value> = more
                    .try_iter()?
                    .map(|item| within_depth(owned(&item)))
                    .collect::<Result<_, Error>>()?;
                more.iter().for_each(|item| self.height.raise_above(item));
                let mut items = lock(&self.items);
                if items.len() + more.len() > MOST_ITEMS {
                    return Err(Error::new(
                        ErrorKind::OutOfFuel,
                        "the template creates a list that is too long",
                    ));
                }
                items.extend(more);
                none
            }
            "insert" => {
                let (at, item): (i64, &Value) = from_args(args)?;
                let item = within_depth(owned(item))?;
                self.height.raise_above(&item);
                let mut items = lock(&self.items);
                let length = items.len() as i64;
                let at = if at < 0 { at + length } else { at }.clamp(0, length);
                items.insert(at as usize, item);
                none
            }
            "pop" => {
                let (at,): (Option<&Value>,) = from_args(args)?;
                let mut items = lock(&self.items);
                let at = match at {
                    None => items.len().checked_sub(1),
                    Some(at) => index_of(at, items.len()),
                };
                let at = at.ok_or_else(|| invalid("pop index out of range"))?;
                Ok(items.remove(at))
            }
            "remove" => {
                let (item,): (&Value,) = from_args(args)?;
                let items = lock(&self.items).clone();
                let at = items.iter().position(|known| known == item);
                let at = at.ok_or_else(|| invalid("list.remove(x): x not in list"))?;
                lock(&self.items).remove(at);
                none
            }
            "index" => {
                let (item,): (&Value,) = from_args(args)?;
                let items = lock(&self.items).clone();
                let at = items.iter().position(|known| known == item);
                at.map(Value::from)
                    .ok_or_else(|| invalid("the value is not in the list"))
            }
            "count" => {
                let (item,): (&Value,) = from_args(args)?;
                let items = lock(&self.items).clone();
                Ok(Value::from(
                    items.iter().filter(|known| *known == item).count(),
                ))
            }
            "reverse" => {
                lock(&self.items).reverse();
                none
            }
            "sort" => {
                let mut items = lock(&self.items).clone();
                items.sort();
                *lock(&self.items) = items;
                none
            }
            "clear" => {
                lock(&self.items).clear();
                none
            }
            "copy" => Ok(Self::value(lock(&self.items).clone())),
            _ => Err(unknown("list", method)),
        }
    }
}

impl Object for Dict {
    /// Compares maps. Equal maps have equal values under the same keys, in any order.
    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<CmpOrdering> {
        let other = other.downcast_ref::<Self>()?;
        bounded_cmp(self, other, || {
            let (one, other) = (lock(&self.entries).clone(), lock(&other.entries).clone());
            let is_same = one.pairs.len() == other.pairs.len()
                && one.pairs.iter().all(|(key, value)| {
                    let found = other.position(key).map(|at| &other.pairs[at].1);
                    found == Some(value)
                });
            if is_same {
                CmpOrdering::Equal
            } else {
                one.pairs.cmp(&other.pairs)
            }
        })
    }

    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let entries = lock(&self.entries);
        entries.position(key).map(|at| entries.pairs[at].1.clone())
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let entries = lock(&self.entries);
        entries
            .by_text
            .get(key)
            .map(|at| entries.pairs[*at].1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(
            lock(&self.entries)
                .pairs
                .iter()
                .map(|(key, _)| key.clone())
                .collect(),
        )
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(lock(&self.entries).pairs.len())
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let none = Value::from(());
        match method {
            // An undefined default stays undefined: it must not become `None` in a path.
            "get" => {
                let (key, _): (&Value, Option<&Value>) = from_args(args)?;
                let default = args.get(1).cloned();
                Ok(self.get_value(key).or(default).unwrap_or(none))
            }
            "items" | "iteritems" => {
                Ok(List::value(lock(&self.entries).pairs.iter().map(
                    |(key, value)| Value::from(vec![key.clone(), value.clone()]),
                )))
            }
            "keys" | "iterkeys" => Ok(List::value(
                lock(&self.entries).pairs.iter().map(|(key, _)| key.clone()),
            )),
            "values" | "itervalues" => Ok(List::value(
                lock(&self.entries)
                    .pairs
                    .iter()
                    .map(|(_, value)| value.clone()),
            )),
            "update" => {
                let (other, named): (Option<&Value>, Kwargs) = from_args(args)?;
                for (key, value) in pairs_of(other)? {
                    self.set(key, within_depth(owned(&value))?);
                }
                for name in named.args() {
                    self.set(
                        Value::from(name),
                        within_depth(owned(&named.get::<Value>(name)?))?,
                    );
                }
                Ok(none)
            }
            "setdefault" => {
                let (key, default): (&Value, Option<&Value>) = from_args(args)?;
                if let Some(known) = self.get_value(key) {
                    return Ok(known);
                }
                let value = within_depth(default.map_or(none, owned))?;
                self.set(key.clone(), value.clone());
                Ok(value)
            }
            "pop" => {
                let (key, _): (&Value, Option<&Value>) = from_args(args)?;
                let removed = lock(&self.entries).remove(key);
                removed
                    .or_else(|| args.get(1).cloned())
                    .ok_or_else(|| invalid(format!("no key {key}")))
            }
            "clear" => {
                *lock(&self.entries) = Entries::default();
                Ok(none)
            }
            "popitem" => {
                let mut entries = lock(&self.entries);
                let last = entries.pairs.last().map(|(key, _)| key.clone());
                let key = last.ok_or_else(|| invalid("popitem of an empty map"))?;
                let value = entries.remove(&key).unwrap_or_default();
                Ok(Value::from(vec![key, value]))
            }
            "copy" => {
                let pairs = lock(&self.entries).pairs.clone();
                Ok(if self.is_ordered {
                    Self::ordered(pairs)
                } else {
                    Self::value(pairs)
                })
            }
            "has_key" => {
                let (key,): (&Value,) = from_args(args)?;
                Ok(Value::from(self.get_value(key).is_some()))
            }
            _ => Err(unknown("map", method)),
        }
    }
}

pub(crate) fn pairs_of(other: Option<&Value>) -> Result<Vec<(Value, Value)>, Error> {
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
