//! Binds parameters to their values.

use super::{EvalResult, Evaluator, error};
use crate::ast::Parameter;
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::value::Value;

impl Evaluator<'_> {
    /// Binds by position, for functions and lambdas.
    pub(super) fn bind(
        &mut self,
        parameters: &[Parameter],
        arguments: Vec<Value>,
        span: Span,
        what: &str,
    ) -> EvalResult<()> {
        let takes_rest = parameters.last().is_some_and(|last| last.captures_rest);
        if arguments.len() > parameters.len() && !takes_rest {
            let message = format!(
                "{what} takes {} arguments, but got {}",
                parameters.len(),
                arguments.len()
            );
            return error(message, span);
        }
        let mut given = arguments.into_iter();
        for parameter in parameters {
            let value = if parameter.captures_rest {
                let rest: Vec<Value> = given.by_ref().collect();
                match (rest.is_empty(), &parameter.default) {
                    (true, Some(default)) => self.value(default)?,
                    _ => self.array(rest, span)?,
                }
            } else {
                match (given.next(), &parameter.default) {
                    (Some(value), _) => value,
                    (None, Some(default)) => self.value(default)?,
                    (None, None) => {
                        let message = format!("{what} needs `${}`", parameter.name);
                        return Err(Diagnostic::new(message, span)
                            .also(parameter.span, "it has no default")
                            .into());
                    }
                }
            };
            if !parameter.captures_rest {
                self.check_type(parameter, &value, span, what)?;
            }
            self.declare(&parameter.name, value, parameter.span)?;
        }
        Ok(())
    }

    /// Refuses a value that the parameter's type does not accept.
    pub(crate) fn check_type(
        &mut self,
        parameter: &Parameter,
        value: &Value,
        span: Span,
        what: &str,
    ) -> EvalResult<()> {
        let Some(declared) = &parameter.type_expression else {
            return Ok(());
        };
        let wanted = self.type_of(declared)?;
        self.work(1, span)?;
        let unknown = self.lenient && *value == Value::Undef;
        if wanted.accepts(value) || unknown {
            return Ok(());
        }
        let message = format!(
            "`${}` of {what} must be {wanted}, not {}",
            parameter.name,
            shown(value)
        );
        Err(Diagnostic::new(message, span)
            .also(parameter.span, "declared here")
            .into())
    }

    /// Declares a variable. The span is for the message when it is set twice.
    pub(crate) fn declare(&mut self, name: &str, value: Value, span: Span) -> EvalResult<()> {
        if self.scopes.set(name, value) {
            Ok(())
        } else {
            error(format!("`${name}` already has a value"), span)
        }
    }
}

/// Formats a value for a message: short, and without secrets.
pub(crate) fn shown(value: &Value) -> String {
    let mut text = String::new();
    let whole = value.write_bounded(&mut text, 4_000);
    let cut: String = text.chars().take(60).collect();
    let cut = if whole && cut.len() == text.len() {
        cut
    } else {
        format!("{cut}…")
    };
    match value {
        Value::String(_) => format!("the String '{cut}'"),
        Value::Undef => "undef".to_owned(),
        value => format!(
            "{} `{cut}`",
            value.kind().replace("a ", "the ").replace("an ", "the ")
        ),
    }
}
