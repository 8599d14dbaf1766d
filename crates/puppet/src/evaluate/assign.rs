//! `$a = 1`, `[$a, $b] = [1, 2]`.

use super::{EvalResult, Evaluator, error};
use crate::ast::{Assignment, Expression, Kind};
use crate::diagnostic::Diagnostic;
use crate::value::Value;

impl Evaluator<'_> {
    pub(super) fn assign(
        &mut self,
        operator: Assignment,
        target: &Expression,
        value: &Expression,
    ) -> EvalResult {
        if operator != Assignment::Set {
            return Err(
                Diagnostic::new("variables cannot be reassigned", target.span)
                    .hint("assign the new value to another variable: `$b = $a + …`")
                    .into(),
            );
        }
        let value = self.value(value)?;
        self.set(target, &value)?;
        Ok(value)
    }

    fn set(&mut self, target: &Expression, value: &Value) -> EvalResult<()> {
        match &target.kind {
            Kind::Variable(name) if name.contains("::") => {
                error("a variable of another scope cannot be set", target.span)
            }
            Kind::Variable(name) if name.starts_with(|first: char| first.is_ascii_digit()) => {
                error("numeric variables are reserved for matches", target.span)
            }
            Kind::Variable(name) => self.declare(name, value.clone(), target.span),
            Kind::Array(targets) => match value {
                Value::Array(list) if list.items.len() == targets.len() => {
                    for (target, item) in targets.iter().zip(&list.items) {
                        self.set(target, item)?;
                    }
                    Ok(())
                }
                Value::Hash(table) => {
                    for target in targets {
                        let name = match &target.kind {
                            Kind::Variable(name) => Value::text(name),
                            _ => return error("expected a variable", target.span),
                        };
                        let item = table.entries.get(&name).cloned().unwrap_or(Value::Undef);
                        self.set(target, &item)?;
                    }
                    Ok(())
                }
                _ => error(
                    format!("expected an array of {} values", targets.len()),
                    target.span,
                ),
            },
            _ => error("only variables can be assigned", target.span),
        }
    }
}
