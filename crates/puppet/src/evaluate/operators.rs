//! Infix operators.

use std::cmp::Ordering;

use super::compare::number;
use super::resource::references_in;
use super::{Arrow, EvalResult, Evaluator, equal, error, order};
use crate::ast::{BinaryOperator as Op, Expression};
use crate::source::Span;
use crate::value::{Float, Hash, Value};

impl Evaluator<'_> {
    pub(super) fn binary(
        &mut self,
        operator: Op,
        left: &Expression,
        right: &Expression,
        span: Span,
    ) -> EvalResult {
        let one = self.value(left)?;
        match operator {
            Op::And if !one.is_true() => return Ok(Value::Boolean(false)),
            Op::Or if one.is_true() => return Ok(Value::Boolean(true)),
            _ => {}
        }
        let other = self.value(right)?;
        let truth = |value| Ok(Value::Boolean(value));
        match operator {
            Op::And | Op::Or => truth(other.is_true()),
            Op::Equal => truth(equal(&one, &other)),
            Op::NotEqual => truth(!equal(&one, &other)),
            Op::Less => self.ordered(&one, &other, span, Ordering::is_lt),
            Op::LessEqual => self.ordered(&one, &other, span, Ordering::is_le),
            Op::Greater => self.ordered(&one, &other, span, Ordering::is_gt),
            Op::GreaterEqual => self.ordered(&one, &other, span, Ordering::is_ge),
            Op::In => Ok(Value::Boolean(self.contains(&other, &one, span)?)),
            Op::Match => Ok(Value::Boolean(self.matched(&one, &other, span)?)),
            Op::NoMatch => Ok(Value::Boolean(!self.matched(&one, &other, span)?)),
            Op::Add => self.add(one, other, span),
            Op::Subtract => self.subtract(one, other, span),
            Op::ShiftLeft => match one {
                Value::Array(list) => {
                    let mut items = list.items.clone();
                    items.push(other);
                    self.array(items, span)
                }
                one => calculate(operator, &one, &other, span),
            },
            Op::Before | Op::Notify => self.arrow(&one, &other, span).map(|()| other),
            Op::Require | Op::Subscribe => self.arrow(&other, &one, span).map(|()| other),
            _ => calculate(operator, &one, &other, span),
        }
    }

    /// Records that `first` comes before `then`. The value of a chain is its last operand.
    fn arrow(&mut self, first: &Value, then: &Value, span: Span) -> EvalResult<()> {
        let first = references_in(first, "an arrow", span)?;
        let then = references_in(then, "an arrow", span)?;
        self.work(first.len() + then.len(), span)?;
        self.sized(self.arrows.len(), span)?;
        self.arrows.push(Arrow { first, then, span });
        Ok(())
    }

    fn ordered(
        &mut self,
        one: &Value,
        other: &Value,
        span: Span,
        wanted: fn(Ordering) -> bool,
    ) -> EvalResult {
        match order(one, other) {
            Some(found) => Ok(Value::Boolean(wanted(found))),
            None => error(
                format!("cannot compare {} and {}", one.kind(), other.kind()),
                span,
            ),
        }
    }

    /// `x in y`
    pub(crate) fn contains(
        &mut self,
        within: &Value,
        wanted: &Value,
        span: Span,
    ) -> EvalResult<bool> {
        Ok(match (within, wanted) {
            (Value::String(text), Value::String(part)) => {
                text.to_lowercase().contains(&part.to_lowercase())
            }
            (Value::String(text), Value::Regex(pattern)) => self.matches(pattern, text, span)?,
            (Value::Array(list), wanted) => {
                self.work(list.items.len(), span)?;
                self.any_item(list.items.iter(), wanted, span)?
            }
            (Value::Hash(table), wanted) => {
                self.work(table.entries.len(), span)?;
                self.any_item(table.entries.keys(), wanted, span)?
            }
            _ => false,
        })
    }

    fn any_item<'v>(
        &mut self,
        mut items: impl Iterator<Item = &'v Value>,
        wanted: &Value,
        span: Span,
    ) -> EvalResult<bool> {
        Ok(match wanted {
            Value::Regex(pattern) => {
                for item in items {
                    if let Value::String(text) = item
                        && self.matches(pattern, text, span)?
                    {
                        return Ok(true);
                    }
                }
                false
            }
            Value::Type(of) => items.any(|item| of.accepts(item)),
            wanted => items.any(|item| equal(item, wanted)),
        })
    }

    /// `x =~ y`
    fn matched(&mut self, one: &Value, pattern: &Value, span: Span) -> EvalResult<bool> {
        match (one, pattern) {
            (Value::String(text), Value::Regex(pattern) | Value::String(pattern)) => {
                self.matches(pattern, text, span)
            }
            (value, Value::Type(of)) => Ok(of.accepts(value)),
            (one, Value::Regex(_)) => error(
                format!("a pattern matches a string, not {}", one.kind()),
                span,
            ),
            (_, other) => error(
                format!("`=~` takes a pattern or a type, not {}", other.kind()),
                span,
            ),
        }
    }

    fn add(&mut self, one: Value, other: Value, span: Span) -> EvalResult {
        match (one, other) {
            (Value::Array(list), other) => {
                let mut items = list.items.clone();
                match other {
                    Value::Array(more) => items.extend(more.items.iter().cloned()),
                    Value::Hash(table) => {
                        for (key, value) in &table.entries {
                            items.push(self.array(vec![key.clone(), value.clone()], span)?);
                        }
                    }
                    other => items.push(other),
                }
                self.array(items, span)
            }
            (Value::Hash(table), Value::Hash(more)) => {
                let mut entries: Hash = table.entries.clone();
                entries.extend(
                    more.entries
                        .iter()
                        .map(|(key, value)| (key.clone(), value.clone())),
                );
                self.hash(entries, span)
            }
            (one, other) => calculate(Op::Add, &one, &other, span),
        }
    }

    fn subtract(&mut self, one: Value, other: Value, span: Span) -> EvalResult {
        match (one, other) {
            (Value::Array(list), other) => {
                let gone: std::collections::HashSet<Value> = match other {
                    Value::Array(list) => list.items.iter().cloned().collect(),
                    other => std::iter::once(other).collect(),
                };
                let kept = list.items.iter().filter(|item| !gone.contains(*item));
                let kept = kept.cloned().collect();
                self.array(kept, span)
            }
            (Value::Hash(table), other) => {
                let mut entries = table.entries.clone();
                match other {
                    Value::Hash(gone) => entries.retain(|key, _| !gone.entries.contains_key(key)),
                    Value::Array(gone) => {
                        let gone: std::collections::HashSet<&Value> = gone.items.iter().collect();
                        entries.retain(|key, _| !gone.contains(key));
                    }
                    other => {
                        entries.shift_remove(&other);
                    }
                }
                self.hash(entries, span)
            }
            (one, other) => calculate(Op::Subtract, &one, &other, span),
        }
    }
}

fn calculate(operator: Op, one: &Value, other: &Value, span: Span) -> EvalResult {
    let one = numeric(one, span)?;
    let other = numeric(other, span)?;
    match (&one, &other) {
        (Value::Integer(one), Value::Integer(other)) => integers(operator, *one, *other, span),
        _ => {
            let (Some(one), Some(other)) = (number(&one), number(&other)) else {
                return error("expected numbers", span);
            };
            let value = match operator {
                Op::Add => one + other,
                Op::Subtract => one - other,
                Op::Multiply => one * other,
                Op::Divide if other == 0.0 => return error("division by zero", span),
                Op::Divide => one / other,
                _ => return error("expected integers", span),
            };
            Ok(Value::Float(Float(value)))
        }
    }
}

/// Returns a number, also from a text that is one.
fn numeric(value: &Value, span: Span) -> EvalResult {
    match value {
        Value::Integer(_) | Value::Float(_) => Ok(value.clone()),
        Value::String(text) => super::functions::text_to_number(text)
            .map_or_else(|| error(format!("'{text}' is not a number"), span), Ok),
        other => error(format!("expected a number, not {}", other.kind()), span),
    }
}

fn integers(operator: Op, one: i64, other: i64, span: Span) -> EvalResult {
    let shift = |by: i64| u32::try_from(by.unsigned_abs()).ok().filter(|by| *by < 64);
    let value = match operator {
        Op::Add => one.checked_add(other),
        Op::Subtract => one.checked_sub(other),
        Op::Multiply => one.checked_mul(other),
        Op::Divide | Op::Modulo if other == 0 => {
            return error("division by zero", span);
        }
        // Ruby rounds down, even below zero.
        Op::Divide => one.checked_div_euclid(other).map(|quotient| {
            let exact = one.wrapping_rem_euclid(other) == 0;
            if other < 0 && !exact {
                quotient - 1
            } else {
                quotient
            }
        }),
        Op::Modulo => one.checked_rem_euclid(other).map(|rest| {
            if other < 0 && rest != 0 {
                rest + other
            } else {
                rest
            }
        }),
        Op::ShiftLeft | Op::ShiftRight => {
            let left = (operator == Op::ShiftLeft) == (other >= 0);
            match (shift(other), left) {
                (Some(by), true) => one.checked_mul(1i64.checked_shl(by).unwrap_or(0)),
                (Some(by), false) => Some(one >> by),
                (None, true) => None,
                (None, false) => Some(if one < 0 { -1 } else { 0 }),
            }
        }
        _ => return error("expected no numbers", span),
    };
    match value {
        Some(value) => Ok(Value::Integer(value)),
        None => error("this number is too large", span),
    }
}
