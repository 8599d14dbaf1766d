//! Built-in functions of the language, and those of its standard library that need only their
//! arguments.

mod applications;
mod collections;
mod convert;
mod data;
mod format;
mod iterate;
mod messages;
mod numbers;
mod ruby;
mod strings;

use crate::ast::{Call, Lambda};
use crate::diagnostic::Diagnostic;
use crate::evaluate::{EvalResult, Evaluator, Role, error};
use crate::source::Span;
use crate::value::Value;
pub(crate) use convert::text_to_number;

/// The arguments of a function.
pub(crate) struct Arguments<'a> {
    pub(crate) name: &'a str,
    pub(crate) values: Vec<Value>,
    pub(crate) lambda: Option<&'a Lambda>,
    pub(crate) span: Span,
}

type Function = fn(&mut Evaluator<'_>, Arguments<'_>) -> EvalResult;

/// All tables of functions: name and implementation.
const TABLES: &[&[(&str, Function)]] = &[
    applications::FUNCTIONS,
    data::FUNCTIONS,
    iterate::FUNCTIONS,
    collections::FUNCTIONS,
    strings::FUNCTIONS,
    numbers::FUNCTIONS,
    convert::FUNCTIONS,
    format::FUNCTIONS,
    messages::FUNCTIONS,
];

fn find(name: &str) -> Option<Function> {
    let name = name.strip_prefix("stdlib::").unwrap_or(name);
    let mut all = TABLES.iter().flat_map(|table| table.iter());
    all.find(|(known, _)| *known == name)
        .map(|(_, function)| *function)
}

/// Calls a function by name.
pub(crate) fn call(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    values: Vec<Value>,
    span: Span,
) -> EvalResult {
    let name = call.name.strip_prefix("::").unwrap_or(&call.name);
    if let Some(function) = find(name) {
        let arguments = Arguments {
            name,
            values,
            lambda: call.lambda.as_ref(),
            span,
        };
        return function(evaluator, arguments);
    }
    if let Some(definition) = evaluator.definition(Role::Function, name, call.name_span)? {
        return evaluator.call_function(&definition, values, span);
    }
    if let Some(value) = ruby::call(evaluator, name, call, &values)? {
        return Ok(value);
    }
    if evaluator.filling {
        let message = format!("the function `{name}` is not available here");
        evaluator.note(Diagnostic::new(message, call.name_span).hint("the value is undefined"));
        evaluator.lenient = true;
        return Ok(Value::Undef);
    }
    let known = TABLES.iter().flat_map(|table| table.iter());
    Err(
        Diagnostic::new(format!("unknown function `{name}`"), call.name_span)
            .near(name, known.map(|(name, _)| *name))
            .into(),
    )
}

impl<'a> Arguments<'a> {
    /// Returns exactly this many values.
    fn exactly<const COUNT: usize>(&mut self) -> EvalResult<[Value; COUNT]> {
        let values = std::mem::take(&mut self.values);
        let given = values.len();
        values
            .try_into()
            .or_else(|_| self.wrong_count(&COUNT.to_string(), given))
    }

    fn wrong_count<T>(&self, wanted: &str, given: usize) -> EvalResult<T> {
        let name = self.name;
        error(
            format!("`{name}` takes {wanted} arguments, but got {given}"),
            self.span,
        )
    }

    fn at_least(&self, least: usize) -> EvalResult<()> {
        if self.values.len() < least {
            self.wrong_count(&format!("at least {least}"), self.values.len())
        } else {
            Ok(())
        }
    }

    /// Returns the lambda, which this function requires.
    fn needed_lambda(&self) -> EvalResult<&'a Lambda> {
        match self.lambda {
            Some(lambda) => Ok(lambda),
            None => error(
                format!("`{}` needs a lambda: `|$x| {{ … }}`", self.name),
                self.span,
            ),
        }
    }

    fn unfit<T>(&self, value: &Value) -> EvalResult<T> {
        error(
            format!("`{}` does not take {}", self.name, value.kind()),
            self.span,
        )
    }
}
