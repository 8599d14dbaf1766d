//! Functions that are written in Ruby. The world calls them.
//!
//! A value that depends on such a function may stay unknown. The set of components and their order
//! may not.

use super::Evaluator;
use crate::ast::Call;
use crate::diagnostic::Diagnostic;
use crate::evaluate::EvalResult;
use crate::value::Value;
use crate::world::FunctionCall;

/// Calls a function of the world. Returns nothing if it has no such function.
pub(super) fn call(
    evaluator: &mut Evaluator<'_>,
    name: &str,
    call: &Call,
    values: &[Value],
) -> EvalResult<Option<Value>> {
    let facts = evaluator.scopes.facts().iter();
    let request = FunctionCall {
        arguments: values.iter().map(Value::to_rich).collect(),
        node: facts
            .map(|(name, value)| (name.clone(), value.to_json()))
            .collect(),
    };
    let problem = match evaluator.world.call(name, &request) {
        Ok(None) => return Ok(None),
        Ok(Some(_)) if call.lambda.is_some() => {
            format!("`{name}` is written in Ruby and cannot call a lambda of a plan")
        }
        Ok(Some(answer)) => match Value::from_rich(&answer) {
            Ok(value) => return evaluator.shallow(value, call.name_span).map(Some),
            Err(kind) => format!("`{name}` returned a value that plans do not know: {kind}"),
        },
        Err(problem) => format!("`{name}` failed: {problem}"),
    };
    let known = super::TABLES.iter().flat_map(|table| table.iter());
    let known = known.map(|(name, _)| *name);
    let problem = Diagnostic::new(problem, call.name_span).near(name, known);
    if evaluator.filling && evaluator.lenient {
        evaluator.note(problem.hint("the value is undefined"));
        return Ok(Some(Value::Undef));
    }
    Err(problem.into())
}
