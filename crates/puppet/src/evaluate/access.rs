//! `$a[1]`, `$h['key']`, `'text'[0, 2]`, `Sql['x']`, `Integer[1, 2]`.

use std::sync::Arc;

use super::{EvalResult, Evaluator, error};
use crate::ast::{Expression, Kind};
use crate::reference::Reference;
use crate::source::Span;
use crate::value::Value;
use crate::value::types::Type;

impl Evaluator<'_> {
    pub(super) fn access(
        &mut self,
        target: &Expression,
        keys: &[Expression],
        span: Span,
    ) -> EvalResult {
        let of = self.value(target)?;
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            self.spread(key, &mut values)?;
        }
        match (&of, values.as_slice()) {
            (Value::Hash(table), [key]) => {
                Ok(table.entries.get(key).cloned().unwrap_or(Value::Undef))
            }
            (Value::Hash(table), keys) => {
                let found = keys
                    .iter()
                    .filter_map(|key| table.entries.get(key).cloned());
                self.array(found.collect(), span)
            }
            (Value::Array(list), [Value::Integer(index)]) => {
                let at = position(*index, list.items.len());
                Ok(at
                    .and_then(|at| list.items.get(at).cloned())
                    .unwrap_or(Value::Undef))
            }
            (Value::Array(list), [Value::Integer(from), Value::Integer(count)]) => {
                let (from, to) = section(*from, *count, list.items.len());
                self.array(list.items[from..to].to_vec(), span)
            }
            (Value::String(text), [Value::Integer(index)]) => self.section(text, *index, 1),
            (Value::String(text), [Value::Integer(from), Value::Integer(count)]) => {
                self.section(text, *from, *count)
            }
            (Value::Type(of), _) => self.type_access(of, target, values, span),
            (Value::Reference(_), _) => error("a reference cannot be indexed here", span),
            (Value::Undef, _) if self.lenient => Ok(Value::Undef),
            (Value::Undef, _) => error("cannot index undef", target.span),
            (other, _) => error(format!("cannot index {} like this", other.kind()), span),
        }
    }

    fn section(&mut self, text: &str, from: i64, count: i64) -> EvalResult {
        let characters: Vec<char> = text.chars().collect();
        let (from, to) = section(from, count, characters.len());
        Ok(Value::text(characters[from..to].iter().collect::<String>()))
    }

    fn type_access(
        &mut self,
        of: &Arc<Type>,
        target: &Expression,
        keys: Vec<Value>,
        span: Span,
    ) -> EvalResult {
        match &**of {
            Type::Resource(None) => self.generic_reference(keys, span),
            Type::Resource(Some(name)) => self.references(name, keys, span),
            _ => match &target.kind {
                Kind::TypeName(_) | Kind::Variable(_) | Kind::Block(_) => {
                    self.parameterised(of, keys, span)
                }
                _ => error(format!("`{of}` takes no more parameters"), span),
            },
        }
    }

    /// Evaluates `Resource['file', '/x']`.
    fn generic_reference(&mut self, keys: Vec<Value>, span: Span) -> EvalResult {
        let mut keys = keys.into_iter();
        let name = match keys.next() {
            Some(Value::String(name)) => name.to_string(),
            Some(Value::Type(of)) => of.to_string(),
            _ => return error("`Resource[…]` takes a type and titles", span),
        };
        match keys.len() {
            0 => Ok(Value::Type(Arc::new(Type::Resource(Some(
                crate::reference::capitalized(&name).into(),
            ))))),
            _ => self.references(&name, keys.collect(), span),
        }
    }

    /// Returns `Sql['a']`, or an array of references for several titles.
    fn references(&mut self, name: &str, keys: Vec<Value>, span: Span) -> EvalResult {
        let mut references = Vec::with_capacity(keys.len());
        let mut waiting = keys;
        waiting.reverse();
        while let Some(key) = waiting.pop() {
            self.work(1, span)?;
            match key {
                Value::Array(list) => waiting.extend(list.items.iter().rev().cloned()),
                Value::String(title) => {
                    let reference = Reference::new(name, title.to_string());
                    references.push(Value::Reference(Arc::new(reference)));
                }
                Value::Integer(title) => {
                    let reference = Reference::new(name, title.to_string());
                    references.push(Value::Reference(Arc::new(reference)));
                }
                Value::Reference(of) if name == "Node" || name == "Class" => {
                    return error(format!("`{of}` cannot be a title"), span);
                }
                other => {
                    return error(
                        format!("a title must be a string, not {}", other.kind()),
                        span,
                    );
                }
            }
        }
        match references.len() {
            0 => error("a reference needs a title", span),
            1 => Ok(references.swap_remove(0)),
            _ => self.array(references, span),
        }
    }
}

/// Resolves an index. A negative one counts from the end.
fn position(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

/// Returns the start and end of `[from, count]`. A negative count is a position from the end.
fn section(from: i64, count: i64, length: usize) -> (usize, usize) {
    let start = position(from, length).unwrap_or(0).min(length);
    let end = match usize::try_from(count) {
        Ok(count) => start.saturating_add(count).min(length),
        Err(_) => position(count, length).map_or(start, |at| (at + 1).min(length)),
    };
    (start, end.max(start))
}
