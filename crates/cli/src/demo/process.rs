//! Child processes that end with this process.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use bunraku_process::{Child, OutputLimits, Program, describe};

use crate::failure::Failure;

/// The time that a child has to end on request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time limit of one command.
const LONGEST: Duration = Duration::from_secs(600);

pub(super) struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts this program with other arguments. Its log goes to a file.
    pub(super) fn start(name: &str, log: &Path, arguments: &[String]) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let log = File::options().create(true).append(true).open(log)?;
        // Ctrl-C is for this process, which ends the children in order.
        let child = Program::new(program)
            .args(arguments)
            .env_remove("BUNRAKU_CONFIG")
            .env_remove("BUNRAKU_SERVERS")
            .stderr(log)
            .start()?;
        Ok(Self {
            name: name.to_owned(),
            child,
        })
    }

    /// Returns the first line that the process prints.
    pub(super) async fn first_line(&mut self) -> Result<String, Failure> {
        use tokio::io::{AsyncBufReadExt, BufReader};
        let stdout = self
            .child
            .stdout
            .take()
            .ok_or_else(|| Failure::new("its output is already in use"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await?;
        if line.is_empty() {
            let status = self.child.wait().await?;
            return Err(Failure::new(format!(
                "{} ended before it was ready ({})",
                self.name,
                describe(status)
            )));
        }
        Ok(line)
    }

    /// Kills the process with `kill -9`.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill();
        self.child.wait().await?;
        Ok(())
    }

    /// Asks the process to end, and kills it after a while.
    pub(super) async fn end(&mut self) {
        let _ = self.child.end(PATIENCE).await;
    }
}

/// Runs a command to its end and returns its output.
pub(super) async fn ran(program: Program, what: &str) -> Result<String, Failure> {
    let output = program.output(OutputLimits::with_timeout(LONGEST)).await;
    let output = output.map_err(|error| Failure::new(format!("`{what}` {error}")))?;
    if output.status.success() {
        Ok(output.stdout_text())
    } else {
        Err(Failure::new(format!(
            "`{what}` failed: {}",
            output.stderr_text().trim()
        )))
    }
}
