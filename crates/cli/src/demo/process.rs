//! A child process that ends with us.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::failure::Failure;

/// How long a child may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts this same program with other arguments; its log goes to a file.
    pub(super) fn start(name: &str, log: &Path, arguments: &[String]) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let log = File::options().create(true).append(true).open(log)?;
        let child = Command::new(program)
            .args(arguments)
            .env_remove("BUNRAKU_CONFIG")
            .env_remove("BUNRAKU_SERVERS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C is for us; we end the children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
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
                "{} ended before it was ready ({status})",
                self.name
            )));
        }
        Ok(line)
    }

    /// `kill -9`.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// Asks it to end, and insists after a while.
    pub(super) async fn end(&mut self) {
        let pid = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .is_err()
        {
            let _ = self.child.kill().await;
        }
    }
}
