//! Functions that print messages. Messages become notes; the library prints nothing.

use super::{Arguments, Function};
use crate::diagnostic::Diagnostic;
use crate::evaluate::{EvalResult, Evaluator};
use crate::value::Value;

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("fail", fail),
    ("notice", note),
    ("warning", note),
    ("err", note),
    ("alert", note),
    ("crit", note),
    ("emerg", note),
    ("info", silent),
    ("debug", silent),
];

fn text(evaluator: &mut Evaluator<'_>, arguments: &Arguments<'_>) -> EvalResult<String> {
    let mut text = String::new();
    for (index, value) in arguments.values.iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        evaluator.append(&mut text, value, arguments.span)?;
    }
    Ok(text)
}

fn fail(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let text = text(evaluator, &arguments)?;
    Err(Diagnostic::new(text, arguments.span)
        .label("the code called `fail`")
        .into())
}

fn note(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let text = text(evaluator, &arguments)?;
    evaluator.note(Diagnostic::new(text, arguments.span));
    Ok(Value::Undef)
}

fn silent(_: &mut Evaluator<'_>, _: Arguments<'_>) -> EvalResult {
    Ok(Value::Undef)
}
