//! Command checks: executed here, by the process that started the run.
//!
//! Rule: only commands from this process's own arguments are executed. A run that someone else
//! started may name any command, so watching it executes nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use bunraku_plan::run::{CheckResult, RolloutCheck, Run, RunWait};
use bunraku_process::{OutputLimits, Program};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

/// The number of characters of the output that a failure shows.
const OUTPUT_SHOWN: usize = 500;

/// The time limit of a command. The timeout of the check usually ends the run before.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// The command checks of a run that this process started.
pub(crate) struct LocalChecks {
    commands: Vec<String>,
    known: BTreeSet<(u32, u32)>,
    running: FuturesUnordered<BoxFuture<'static, CheckResult>>,
}

impl LocalChecks {
    pub(crate) fn new(commands: &[String]) -> Self {
        Self {
            commands: commands.to_vec(),
            known: BTreeSet::new(),
            running: FuturesUnordered::new(),
        }
    }

    /// Starts the commands that the run waits for.
    pub(crate) fn begin(&mut self, run: &Run) {
        for wait in run.waits() {
            let RunWait::Check {
                gate,
                check,
                what: RolloutCheck::Command { command },
                ..
            } = wait
            else {
                continue;
            };
            if self.commands.contains(&command) && self.known.insert((gate, check)) {
                let nodes: Vec<String> = (run.nodes_that_ran().iter())
                    .map(ToString::to_string)
                    .collect();
                let id = run.id().to_string();
                self.running
                    .push(execute(command, id, nodes, (gate, check)).boxed());
            }
        }
    }

    /// Returns the next result.
    pub(crate) async fn next(&mut self) -> CheckResult {
        match self.running.next().await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }
}

async fn execute(
    command: String,
    run: String,
    nodes: Vec<String>,
    (gate, check): (u32, u32),
) -> CheckResult {
    let output = Program::new("sh")
        .args(["-c", &command])
        .env("BUNRAKU_RUN", run)
        .env("BUNRAKU_NODES", nodes.join(","))
        .output(OutputLimits::with_timeout(LONGEST))
        .await;
    let (passed, message) = match output {
        Ok(output) if output.status.success() => (true, None),
        Ok(output) => {
            let text = output.stderr_text();
            let shown: String = text.trim().chars().take(OUTPUT_SHOWN).collect();
            (false, Some(format!("{}: {shown}", output.status)))
        }
        Err(error) => (false, Some(error.to_string())),
    };
    CheckResult {
        gate: Some(gate),
        check: Some(check),
        passed,
        message,
    }
}
