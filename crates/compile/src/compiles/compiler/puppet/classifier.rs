//! The external node classifier: the operator's program that returns the
//! classes and parameters of a node.
//!
//! It belongs to the server and runs outside the sandbox.

use std::time::Duration;

use bunraku_process::{OutputLimits, Program, describe};
use bunraku_states::read_document;
use serde_json::Value;

use crate::compile_failure::CompileFailure;

const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Asks the program about a node.
pub(crate) async fn classify(command: &[String], node: &str) -> Result<Value, CompileFailure> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(Value::Null);
    };
    let failed = |why: String| {
        CompileFailure::message(format!("the node classifier `{program}` failed: {why}"))
    };
    let limits = OutputLimits::with_timeout(TIME_LIMIT);
    let asked = Program::new(program).args(arguments).arg(node);
    match asked.output(limits).await {
        Err(error) => Err(failed(format!("it {error}"))),
        Ok(output) if output.status.success() => read(&output.stdout_text()).map_err(failed),
        Ok(output) => {
            let (status, words) = (describe(output.status), output.stderr_text());
            Err(failed(format!("{status}; {}", words.trim())))
        }
    }
}

/// Reads classes, as a list or a map, and parameters.
fn read(text: &str) -> Result<Value, String> {
    let document = read_document("the classifier's answer", text)
        .map_err(|problem| format!("its answer is not YAML: {}", problem.message))?;
    let value = document.to_json();
    if value.is_object() {
        return Ok(value);
    }
    Err("its answer is not a map with `classes` and `parameters`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    async fn classified(script: &str) -> Result<Value, String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        let answer = classify(&command, "web-1").await;
        answer.map_err(|failure| failure.to_string())
    }

    #[tokio::test]
    async fn the_program_gets_the_name_and_answers_in_yaml() {
        let answer =
            classified("printf 'classes: {ntp: {}}\\nparameters: {node: %s}\\n' \"$0\"").await;
        let expected = json!({"classes": {"ntp": {}}, "parameters": {"node": "web-1"}});
        assert_eq!(answer, Ok(expected));
    }

    #[tokio::test]
    async fn a_failing_program_fails_the_compile_with_its_words() {
        let error = classified("echo unknown node >&2; exit 3").await;
        let error = error.expect_err("it failed");
        assert!(error.contains("; unknown node"), "{error}");
        let error = classified("echo '- 1'").await.expect_err("not a map");
        assert!(error.contains("not a map with `classes`"), "{error}");
    }
}
