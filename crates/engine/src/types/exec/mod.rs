//! `exec`, which states call `cmd`: runs a command when its guards allow it.
//!
//! Guards (`onlyif`, `unless`, `creates`) are how a command is observed. They also run
//! in a noop run, as in Puppet and Salt, and so must change nothing.

mod guards;
mod heard;
mod run;
mod spec;
#[cfg(test)]
mod tests;
mod wish;

pub use run::{Done, Run, RunError, shell};

use serde_json::{Map, Value, json};

use crate::{
    Applied, Change, Declaration, Hands, Observation, Provider, Refusal, Relations, ResourceType,
    Sight, StepError, TypeSpec,
};
use guards::Verdict;
use wish::Wish;

pub(crate) struct Exec;

impl ResourceType for Exec {
    type Desired = Wish;
    type Observed = Verdict;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<Wish, Refusal> {
        Wish::read(declaration)
    }

    fn changes(&self, desired: &Wish, observed: &Verdict) -> Vec<Change> {
        if desired.refreshonly || observed.stay.is_some() {
            return Vec::new();
        }
        vec![executed(desired)]
    }

    fn refresh_change(&self, desired: &Wish, observed: &Verdict) -> Option<Change> {
        observed.stay.is_none().then(|| executed(desired))
    }

    fn relations(&self, desired: &Wish, relations: &mut Relations) {
        desired.relations(relations);
    }
}

fn executed(desired: &Wish) -> Change {
    Change::new("returns", json!("not run"), json!(desired.returns))
}

impl Provider for Exec {
    fn observe(&self, desired: &Wish, sight: &Sight<'_>) -> Result<Verdict, StepError> {
        guards::ask(desired, sight)
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<Applied, StepError> {
        let Observation { desired, hands, .. } = *step;
        execute(desired, desired.command(), hands)
    }

    /// Evaluates the guards again: the command itself may have just run.
    fn refresh(
        &self,
        desired: &Wish,
        _: &Verdict,
        hands: &Hands<'_>,
    ) -> Result<Applied, StepError> {
        if let Some(stay) = guards::ask(desired, hands)?.stay {
            return Ok(Applied {
                message: Some(stay),
                ..Applied::default()
            });
        }
        execute(desired, desired.refresh_command(), hands)
    }
}

fn execute(desired: &Wish, command: Run, hands: &Hands<'_>) -> Result<Applied, StepError> {
    let mut tried = 1;
    loop {
        let done = match command.run(hands) {
            Ok(done) => done,
            Err(RunError::Timeout { after, output }) => {
                let error = RunError::Timeout {
                    after,
                    output: Box::default(),
                };
                return Err(StepError::from(error).with_outputs(outputs(&output)));
            }
            Err(error) => return Err(error.into()),
        };
        if done
            .code
            .is_some_and(|code| desired.returns.contains(&code))
        {
            return Ok(desired.applied(&done));
        }
        if tried >= desired.tries {
            return Err(failure(desired, &done));
        }
        tried += 1;
        if hands.cancellation().sleep(desired.try_sleep) {
            return Err(StepError::interrupted());
        }
    }
}

fn failure(desired: &Wish, done: &Done) -> StepError {
    let expected: Vec<String> = desired.returns.iter().map(i32::to_string).collect();
    let mut text = format!(
        "`{}` ended with {} instead of {}",
        desired.shown(),
        done.ending(),
        expected.join(" or ")
    );
    let stderr = done.stderr_text();
    if let Some(last) = stderr.lines().rev().find(|line| !line.trim().is_empty()) {
        text.push_str(": ");
        text.push_str(last.trim());
    }
    StepError::new(text)
        .with_outputs(outputs(done))
        .with_changes_made()
}

/// Returns the outputs that later resources and reports may read.
fn outputs(done: &Done) -> Map<String, Value> {
    let trimmed = |text: String| text.trim_end_matches('\n').to_owned();
    let mut outputs = Map::new();
    outputs.insert("pid".to_owned(), json!(done.pid));
    outputs.insert("rc".to_owned(), json!(done.code));
    outputs.insert("stdout".to_owned(), json!(trimmed(done.stdout_text())));
    outputs.insert("stderr".to_owned(), json!(trimmed(done.stderr_text())));
    if done.cut {
        outputs.insert("cut".to_owned(), json!(true));
    }
    outputs
}
