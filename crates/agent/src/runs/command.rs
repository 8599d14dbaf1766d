//! A run that executes a command, which the node's owner configures.
//!
//! The command has its own process group, and the whole group ends when the run is stopped. Its
//! output becomes log lines. Its exit code decides whether the run succeeds.

use std::process::ExitStatus;
use std::sync::Arc;

use async_trait::async_trait;
use bunraku_process::{Child, describe};
use bunraku_wire::api::{RunEnding, RunMode};
use tokio_util::sync::CancellationToken;

use super::method::{PreparedRun, RunDescription, RunEnd, RunMethod, RunOrder, RunStartError};
use super::process;
use crate::reports::Recorder;

/// The command to run.
#[derive(Clone, Debug)]
pub struct CommandOptions {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The command for noop runs. Without it, there are no noop runs.
    pub noop_command: Option<Vec<String>>,
    /// Exit codes that mean success.
    pub success_codes: Vec<i32>,
}

/// Runs the configured command.
pub struct CommandMethod {
    options: CommandOptions,
}

struct PreparedCommand {
    command: Vec<String>,
    order: RunOrder,
    success_codes: Vec<i32>,
}

impl CommandMethod {
    pub fn new(options: CommandOptions) -> Self {
        Self { options }
    }
}

#[async_trait]
impl RunMethod for CommandMethod {
    fn name(&self) -> &'static str {
        "command"
    }

    async fn prepare(&self, order: &RunOrder) -> Result<Box<dyn PreparedRun>, RunStartError> {
        let command = match order.mode {
            RunMode::Enforce => Some(&self.options.command),
            RunMode::Noop => self.options.noop_command.as_ref(),
        };
        let Some(command) = command.filter(|command| !command.is_empty()) else {
            return Err(RunStartError::new(
                "a noop run was requested, but `run_noop_command` is not set",
            ));
        };
        Ok(Box::new(PreparedCommand {
            command: command.clone(),
            order: order.clone(),
            success_codes: self.options.success_codes.clone(),
        }))
    }
}

#[async_trait]
impl PreparedRun for PreparedCommand {
    fn describe(&self) -> RunDescription {
        RunDescription::new(self.order.mode)
    }

    async fn execute(self: Box<Self>, recorder: Arc<Recorder>, stop: CancellationToken) -> RunEnd {
        let mut child = match self.spawn() {
            Ok(child) => child,
            Err(error) => {
                return RunEnd {
                    ending: RunEnding::NotStarted,
                    message: Some(format!("cannot start `{}`: {error}", self.command[0])),
                    failure: None,
                };
            }
        };
        let status = process::supervise(&mut child, &recorder, &stop).await;
        self.end(status)
    }
}

impl PreparedCommand {
    fn spawn(&self) -> std::io::Result<Child> {
        process::program(&self.command[0], &self.order)
            .args(&self.command[1..])
            .start()
    }

    fn end(&self, status: std::io::Result<ExitStatus>) -> RunEnd {
        let code = status.as_ref().ok().and_then(ExitStatus::code);
        if code.is_some_and(|code| self.success_codes.contains(&code)) {
            return RunEnd {
                ending: RunEnding::Succeeded,
                message: None,
                failure: None,
            };
        }
        let how = match status {
            Ok(status) => format!("`{}` exited with {}", self.command[0], describe(status)),
            Err(error) => format!("cannot wait for `{}`: {error}", self.command[0]),
        };
        RunEnd {
            ending: RunEnding::Failed,
            message: Some(how),
            failure: None,
        }
    }
}

#[cfg(test)]
mod tests;
