//! Functions that read data from the world.
//!
//! Data that the world does not know is `undef` or an empty answer, with a note.

use super::{Arguments, Function};
use crate::diagnostic::Diagnostic;
use crate::evaluate::{EvalResult, Evaluator, error};
use crate::value::Value;

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("lookup", lookup),
    ("hiera", lookup),
    ("hiera_array", lookup),
    ("hiera_hash", lookup),
    ("loadyaml", data_file),
    ("loadjson", data_file),
    ("puppetdb_query", query),
    ("get_compiler_environment", environment),
];

/// Returns the default: Hiera is not queried.
fn lookup(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(1)?;
    if let Some(lambda) = arguments.lambda {
        return evaluator.call_lambda(lambda, vec![arguments.values[0].clone()]);
    }
    if let Some(default) = default_value(&arguments) {
        return Ok(default);
    }
    let name = &arguments.values[0];
    let message = format!("`{}` of `{name}` is undefined", arguments.name);
    let hint = "plans do not read Hiera: add a default, or set the value in the site";
    evaluator.note(Diagnostic::new(message, arguments.span).hint(hint));
    // The consumer of the value must accept that it is missing.
    evaluator.lenient |= evaluator.filling;
    Ok(Value::Undef)
}

/// Returns the default of `hiera(name, default)`, `lookup(name, type, merge, default)`,
/// `lookup(name, { default_value => … })`.
fn default_value(arguments: &Arguments<'_>) -> Option<Value> {
    let values = &arguments.values;
    if arguments.name != "lookup" {
        return values.get(1).cloned();
    }
    let options = values.iter().skip(1).find_map(|value| match value {
        Value::Hash(table) => table.entries.get(&Value::text("default_value")).cloned(),
        _ => None,
    });
    options.or_else(|| values.get(3).cloned())
}

fn data_file(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(1)?;
    let Value::String(path) = &arguments.values[0] else {
        return arguments.unfit(&arguments.values[0]);
    };
    match evaluator.world.data_file(path) {
        Ok(Some(content)) => evaluator.shallow(Value::from_json(&content), arguments.span),
        Ok(None) => match arguments.values.get(1) {
            Some(default) => Ok(default.clone()),
            None => {
                let message = format!("the environment has no file `{path}`");
                evaluator.note(Diagnostic::new(message, arguments.span));
                Ok(Value::Undef)
            }
        },
        Err(problem) => error(problem.to_string(), arguments.span),
    }
}

fn query(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(1)?;
    let Value::String(query) = &arguments.values[0] else {
        return arguments.unfit(&arguments.values[0]);
    };
    match evaluator.world.query(query) {
        Ok(Some(rows)) => evaluator.shallow(Value::from_json(&rows), arguments.span),
        Ok(None) => {
            let message = "`puppetdb_query` returns nothing: nobody answers queries here";
            let hint = "plan with a server, or pass facts with `--facts`";
            evaluator.note(Diagnostic::new(message, arguments.span).hint(hint));
            evaluator.array(Vec::new(), arguments.span)
        }
        Err(problem) => error(problem.to_string(), arguments.span),
    }
}

fn environment(evaluator: &mut Evaluator<'_>, _: Arguments<'_>) -> EvalResult {
    Ok(Value::text(evaluator.world.environment()))
}
