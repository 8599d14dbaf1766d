//! Child processes that end with us.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use bunraku_process::{Child, OutputLimits, Program, describe};

use crate::failure::Failure;

/// How long a child may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one command may take.
const LONGEST: Duration = Duration::from_secs(600);

pub(super) struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts this same program with other arguments; its log goes to a file.
    pub(super) fn start(name: &str, log: &Path, arguments: &[String]) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let log = File::options().create(true).append(true).open(log)?;
        // Ctrl-C is for us; we end the children in order.
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

    /// The first line that it prints.
    pub(super) async fn first_line(&mut self) -> Result<String, Failure> {
        use tokio::io::{AsyncBufReadExt, BufReader};
        let stdout = self
            .child
            .stdout
            .take()
            .ok_or_else(|| Failure::new("its output was taken already"))?;
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

    /// `kill -9`.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill();
        self.child.wait().await?;
        Ok(())
    }

    /// Asks it to end, and insists after a while.
    pub(super) async fn end(&mut self) {
        let _ = self.child.end(PATIENCE).await;
    }
}

/// Runs a command to its end and returns its output.
pub(super) async fn ran(program: Program, what: &str) -> Result<String, Failure> {
    let output = program.output(OutputLimits::within(LONGEST)).await;
    let output = output.map_err(|error| Failure::new(format!("`{what}` {error}")))?;
    match output.status.success() {
        true => Ok(output.stdout_text()),
        false => Err(Failure::new(format!(
            "`{what}` failed: {}",
            output.stderr_text().trim()
        ))),
    }
}
