//! `exec`, which states call `cmd`: runs a command when its guards allow it.
//!
//! Guards (`onlyif`, `unless`, `creates`) are how a command is observed. They also run
//! in a noop run, as in Puppet and Salt, and so must change nothing.

mod desired;
mod guards;
mod output;
mod run;
mod spec;
#[cfg(test)]
mod tests;

pub use run::{FinishedCommand, Run, RunError, shell};

use serde_json::{Map, Value, json};

use crate::{
    ApplyResult, Change, Declaration, Observation, Provider, ReadAccess, Refusal, Relations,
    ResourceType, StepError, TypeSpec, WriteAccess,
};
use desired::DesiredExec;
use guards::GuardVerdict;

pub(crate) struct Exec;

impl ResourceType for Exec {
    type Desired = DesiredExec;
    type Observed = GuardVerdict;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredExec, Refusal> {
        DesiredExec::read(declaration)
    }

    fn changes(&self, desired: &DesiredExec, observed: &GuardVerdict) -> Vec<Change> {
        if desired.refreshonly || observed.stay.is_some() {
            return Vec::new();
        }
        vec![executed(desired)]
    }

    fn refresh_change(&self, desired: &DesiredExec, observed: &GuardVerdict) -> Option<Change> {
        observed.stay.is_none().then(|| executed(desired))
    }

    fn relations(&self, desired: &DesiredExec, relations: &mut Relations) {
        desired.relations(relations);
    }

    fn unchanged_message(&self, _: &DesiredExec, observed: &GuardVerdict) -> Option<String> {
        observed.stay.clone()
    }

    fn undoes_drift(&self, _desired: &DesiredExec, _observed: &GuardVerdict) -> bool {
        false
    }
}

fn executed(desired: &DesiredExec) -> Change {
    Change::new("returns", json!("not run"), json!(desired.returns))
}

impl Provider for Exec {
    fn observe(
        &self,
        desired: &DesiredExec,
        access: &ReadAccess<'_>,
    ) -> Result<GuardVerdict, StepError> {
        guards::ask(desired, access)
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let Observation {
            desired,
            write_access,
            ..
        } = *step;
        execute(desired, desired.command(), write_access)
    }

    /// Evaluates the guards again: the command itself may have just run.
    fn refresh(
        &self,
        desired: &DesiredExec,
        _: &GuardVerdict,
        write_access: &WriteAccess<'_>,
    ) -> Result<ApplyResult, StepError> {
        if let Some(stay) = guards::ask(desired, write_access)?.stay {
            return Ok(ApplyResult {
                message: Some(stay),
                ..ApplyResult::default()
            });
        }
        execute(desired, desired.refresh_command(), write_access)
    }
}

fn execute(
    desired: &DesiredExec,
    command: Run,
    write_access: &WriteAccess<'_>,
) -> Result<ApplyResult, StepError> {
    let mut tried = 1;
    loop {
        let done = match command.run(write_access) {
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
        if write_access.cancellation().sleep(desired.try_sleep) {
            return Err(StepError::interrupted());
        }
    }
}

fn failure(desired: &DesiredExec, done: &FinishedCommand) -> StepError {
    let expected: Vec<String> = desired.returns.iter().map(i32::to_string).collect();
    let mut text = format!(
        "`{}` exited with {} instead of {}",
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
fn outputs(done: &FinishedCommand) -> Map<String, Value> {
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
