//! Numbers.

use std::cmp::Ordering;

use super::{Arguments, Function};
use crate::evaluate::{EvalResult, Evaluator, error, order};
use crate::value::{Float, Value};

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("abs", abs),
    ("ceiling", |_, arguments| rounded(arguments, f64::ceil)),
    ("floor", |_, arguments| rounded(arguments, f64::floor)),
    ("round", |_, arguments| rounded(arguments, f64::round)),
    ("max", |_, arguments| extreme(&arguments, Ordering::Greater)),
    ("min", |_, arguments| extreme(&arguments, Ordering::Less)),
];

fn abs(_: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    match arguments.exactly()? {
        [Value::Integer(number)] => number.checked_abs().map_or_else(
            || error("this number is too large", arguments.span),
            |number| Ok(Value::Integer(number)),
        ),
        [Value::Float(Float(number))] => Ok(Value::Float(Float(number.abs()))),
        [other] => arguments.unfit(&other),
    }
}

fn rounded(mut arguments: Arguments<'_>, round: fn(f64) -> f64) -> EvalResult {
    match arguments.exactly()? {
        [Value::Integer(number)] => Ok(Value::Integer(number)),
        [Value::Float(Float(number))] => {
            let number = round(number);
            #[allow(clippy::cast_possible_truncation)]
            if number.abs() < 9e18 {
                Ok(Value::Integer(number as i64))
            } else {
                error("this number is too large", arguments.span)
            }
        }
        [other] => arguments.unfit(&other),
    }
}

fn extreme(arguments: &Arguments<'_>, wanted: Ordering) -> EvalResult {
    let values: &[Value] = match arguments.values.as_slice() {
        [Value::Array(list)] => &list.items,
        values => values,
    };
    let Some((first, others)) = values.split_first() else {
        return arguments.wrong_count("at least 1", 0);
    };
    let mut best = first;
    for value in others {
        match order(value, best) {
            None => return arguments.unfit(value),
            Some(found) if found == wanted => best = value,
            Some(_) => {}
        }
    }
    Ok(best.clone())
}
