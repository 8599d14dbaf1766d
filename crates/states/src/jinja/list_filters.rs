//! Filters over lists.

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

use super::mutable::List;
use super::python;

pub(super) fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

pub(super) fn add(environment: &mut Environment<'_>) {
    environment.add_filter(
        "union",
        |one: &Value, other: &Value| -> Result<Value, Error> {
            Ok(List::value(distinct(
                one.try_iter()?.chain(other.try_iter()?),
            )))
        },
    );
    environment.add_filter(
        "intersect",
        |one: &Value, other: &Value| -> Result<Value, Error> {
            let other: Vec<Value> = other.try_iter()?.collect();
            Ok(List::value(distinct(
                one.try_iter()?.filter(|item| other.contains(item)),
            )))
        },
    );
    environment.add_filter(
        "difference",
        |one: &Value, other: &Value| -> Result<Value, Error> {
            let other: Vec<Value> = other.try_iter()?.collect();
            Ok(List::value(distinct(
                one.try_iter()?.filter(|item| !other.contains(item)),
            )))
        },
    );
    environment.add_filter(
        "symmetric_difference",
        |one: &Value, other: &Value| -> Result<Value, Error> {
            let (one, other): (Vec<Value>, Vec<Value>) =
                (one.try_iter()?.collect(), other.try_iter()?.collect());
            let only_one = one.iter().filter(|item| !other.contains(item));
            let only_other = other.iter().filter(|item| !one.contains(item));
            Ok(List::value(distinct(only_one.chain(only_other).cloned())))
        },
    );
    environment.add_filter("unique", |list: &Value| -> Result<Value, Error> {
        Ok(List::value(distinct(list.try_iter()?)))
    });
    environment.add_filter("flatten", |list: &Value| -> Result<Value, Error> {
        let mut flat = Vec::new();
        flatten(list, &mut flat, 0)?;
        Ok(List::value(flat))
    });
    environment.add_filter("sequence", |value: &Value| {
        if is_list(value) {
            value.clone()
        } else {
            List::value([value.clone()])
        }
    });
    environment.add_filter("avg", |list: &Value| -> Result<f64, Error> {
        let numbers: Vec<f64> = list
            .try_iter()?
            .map(f64::try_from)
            .collect::<Result<_, _>>()?;
        Ok(numbers.iter().sum::<f64>() / numbers.len().max(1) as f64)
    });
    environment.add_filter(
        "exactly_n_true",
        |list: &Value, amount: usize| -> Result<bool, Error> {
            Ok(list.try_iter()?.filter(Value::is_true).count() == amount)
        },
    );
    environment.add_filter("exactly_one_true", |list: &Value| -> Result<bool, Error> {
        Ok(list.try_iter()?.filter(Value::is_true).count() == 1)
    });
    environment.add_filter(
        "sorted_ignorecase",
        |list: &Value| -> Result<Value, Error> {
            let mut items: Vec<Value> = list.try_iter()?.collect();
            items.sort_by_key(|item| python::text(item).to_lowercase());
            Ok(List::value(items))
        },
    );
    environment.add_filter("compare_lists", |one: &Value, other: &Value| one == other);
}

fn distinct(items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn flatten(list: &Value, flat: &mut Vec<Value>, depth: usize) -> Result<(), Error> {
    if depth > 64 {
        return Err(Error::new(ErrorKind::InvalidOperation, "nested too deeply"));
    }
    for item in list.try_iter()? {
        if is_list(&item) {
            flatten(&item, flat, depth + 1)?;
        } else if !item.is_none() {
            flat.push(item);
        }
    }
    Ok(())
}
