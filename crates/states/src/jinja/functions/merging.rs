//! Merging maps, as Salt does: in place where Salt merges in place, so that a template that ignores
//! the result sees it in the variable.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::Arguments;
use crate::jinja::filters::invalid;
use crate::jinja::mutable::{DEEPEST, Dict, List, owned, within_depth};

/// Merges `over` into the map `base`, in place if it is a variable of a template. Maps merge into
/// maps. Everything else replaces, except lists with `merges_lists`.
pub(super) fn update(base: &Value, over: &Value, merges_lists: bool) -> Result<Value, Error> {
    deep_update(base, over, merges_lists, 0)
}

fn deep_update(
    base: &Value,
    over: &Value,
    merges_lists: bool,
    depth: usize,
) -> Result<Value, Error> {
    if depth > DEEPEST {
        return Err(invalid("the maps to merge are nested too deeply"));
    }
    let base = owned(base);
    let (Some(dict), ValueKind::Map) = (base.downcast_object::<Dict>(), over.kind()) else {
        return Err(invalid(format!(
            "only maps can be merged, not {} and {}",
            base.kind(),
            over.kind()
        )));
    };
    for key in over.try_iter()? {
        let value = owned(&over.get_item(&key)?);
        let known = base.get_item(&key)?;
        let merged = match (known.kind(), value.kind()) {
            (ValueKind::Map, ValueKind::Map) => {
                deep_update(&known, &value, merges_lists, depth + 1)?
            }
            (ValueKind::Seq, ValueKind::Seq) if merges_lists => {
                let mut items: Vec<Value> = known.try_iter()?.collect();
                for item in value.try_iter()? {
                    if !items.contains(&item) {
                        items.push(item);
                    }
                }
                List::value(items)
            }
            _ => value,
        };
        dict.set(key, within_depth(merged)?);
    }
    Ok(base)
}

/// Returns a merged copy.
pub(super) fn merged(
    base: &Value,
    over: &Value,
    overwrites: bool,
    merges_lists: bool,
) -> Result<Value, Error> {
    let copy = deep_copy(base)?;
    if overwrites && let Some(dict) = copy.downcast_object::<Dict>() {
        for key in over.try_iter()? {
            if !base.get_item(&key)?.is_undefined() {
                dict.set(key.clone(), owned(&over.get_item(&key)?));
            }
        }
    }
    update(&copy, over, merges_lists)
}

/// Returns a copy that shares no list and no map with the original.
pub(super) fn deep_copy(value: &Value) -> Result<Value, Error> {
    copied(value, 0)
}

fn copied(value: &Value, depth: usize) -> Result<Value, Error> {
    if depth > DEEPEST {
        return Err(invalid("the value to copy is nested too deeply"));
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.map(|item| copied(&item, depth + 1));
            Ok(List::value(items.collect::<Result<Vec<_>, Error>>()?))
        }
        ValueKind::Map => {
            let pairs = value.try_iter()?.map(|key| {
                let item = copied(&value.get_item(&key)?, depth + 1)?;
                Ok((key, item))
            });
            let pairs = pairs.collect::<Result<Vec<_>, Error>>()?;
            Ok(Dict::like(value, pairs))
        }
        _ => Ok(value.clone()),
    }
}

/// Implements `defaults.merge(dest, src, merge_lists=False, in_place=True, convert_none=True)`.
pub(super) fn defaults_merge(arguments: &Arguments) -> Result<Value, Error> {
    let in_place = arguments.is_true(3, "in_place", true);
    let base = arguments.required(0, "dest")?;
    let over = or_empty(arguments.required(1, "src")?);
    let base = match (base.is_none(), in_place) {
        (true, true) => return Err(invalid("`None` cannot be merged into in place")),
        (true, false) => Dict::value([]),
        (false, true) => base,
        (false, false) => deep_copy(&base)?,
    };
    update(&base, &over, arguments.is_true(2, "merge_lists", false))
}

/// Implements `defaults.update(dest, defaults, merge_lists=True, in_place=True)`: each entry of
/// `dest` over the defaults.
pub(super) fn defaults_update(arguments: &Arguments) -> Result<Value, Error> {
    let nodes = owned(&arguments.required(0, "dest")?);
    let defaults = or_empty(arguments.required(1, "defaults")?);
    let nodes = if arguments.is_true(3, "in_place", true) {
        nodes
    } else {
        deep_copy(&nodes)?
    };
    let Some(dict) = nodes.downcast_object::<Dict>() else {
        return Err(invalid("`dest` of `defaults.update` must be a map"));
    };
    let merges_lists = arguments.is_true(2, "merge_lists", true);
    for key in nodes.try_iter()? {
        let own = or_empty(nodes.get_item(&key)?);
        dict.set(key, update(&deep_copy(&defaults)?, &own, merges_lists)?);
    }
    Ok(nodes)
}

fn or_empty(value: Value) -> Value {
    if value.is_none() {
        Dict::value([])
    } else {
        value
    }
}

/// Implements `slsutil.update(dest, upd, recursive_update=True, merge_lists=False)`.
pub(super) fn update_in_place(arguments: &Arguments) -> Result<Value, Error> {
    let (base, over) = (
        arguments.required(0, "dest")?,
        arguments.required(1, "upd")?,
    );
    if arguments.is_true(2, "recursive_update", true) {
        return update(&base, &over, arguments.is_true(3, "merge_lists", false));
    }
    let base = owned(&base);
    let Some(dict) = base.downcast_object::<Dict>() else {
        return Err(invalid("`dest` of `slsutil.update` must be a map"));
    };
    for key in over.try_iter()? {
        dict.set(key.clone(), owned(&over.get_item(&key)?));
    }
    Ok(base)
}

/// Implements `slsutil.merge(obj_a, obj_b, strategy='smart', renderer='yaml', merge_lists=False)`.
pub(super) fn merge(arguments: &Arguments) -> Result<Value, Error> {
    let (one, other) = (
        arguments.required(0, "obj_a")?,
        arguments.required(1, "obj_b")?,
    );
    by_strategy(&one, &other, arguments)
}

/// Implements `slsutil.merge_all(lst, strategy='smart', renderer='yaml', merge_lists=False)`.
pub(super) fn merge_all(arguments: &Arguments) -> Result<Value, Error> {
    let list = arguments.required(0, "lst")?;
    let mut all = Dict::value([]);
    for item in list.try_iter()? {
        all = by_strategy(&all, &item, arguments)?;
    }
    Ok(all)
}

fn by_strategy(one: &Value, other: &Value, arguments: &Arguments) -> Result<Value, Error> {
    let strategy = arguments.get(2, "strategy");
    let strategy = strategy.as_ref().and_then(Value::as_str).unwrap_or("smart");
    let merges_lists = arguments.is_true(4, "merge_lists", false);
    match strategy {
        "aggregate" => Err(invalid("the merge strategy `aggregate` is not supported")),
        "list" => {
            let pairs = one.try_iter()?.map(|key| {
                let (first, second) = (one.get_item(&key)?, other.get_item(&key)?);
                let value = if second.is_undefined() {
                    first
                } else {
                    List::value([first, second])
                };
                Ok((key, value))
            });
            Ok(Dict::value(pairs.collect::<Result<Vec<_>, Error>>()?))
        }
        _ => merged(one, other, strategy == "overwrite", merges_lists),
    }
}
