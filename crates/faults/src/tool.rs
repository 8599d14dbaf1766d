//! Runs the machine's own programs: `ip`, `nft`, `tc`, `mount`.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The reason why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("cannot start `{program}`: `scripts/setup test` installs it")]
    Missing {
        program: String,
        #[source]
        source: std::io::Error,
    },
    #[error("`{command}`: {message}")]
    Failed { command: String, message: String },
}

/// Runs a command line, and returns its output.
pub(crate) async fn run(words: &[&str]) -> Result<String, ToolError> {
    feed(words, "").await
}

/// Like `run`, with standard input.
pub(crate) async fn feed(words: &[&str], input: &str) -> Result<String, ToolError> {
    let missing = |source| ToolError::Missing {
        program: words[0].to_owned(),
        source,
    };
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(missing)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that reads nothing may already have exited.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(missing)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(ToolError::Failed {
            command: words.join(" "),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}
