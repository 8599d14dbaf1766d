//! Running the system's tools, to observe or to act, with errors that include the tool's message.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::exec::{FinishedCommand, Run};
use crate::{ReadAccess, StepError, WriteAccess};

/// The timeout of a tool that only observes. One that has not answered by then never will.
const LOOKING: Duration = Duration::from_secs(300);

/// The number of lines of a tool's error output that are worth showing.
const COMPLAINT: usize = 6;

/// Runs a tool that changes nothing. The caller checks how it ended.
pub(crate) fn look<W: Into<OsString>>(
    words: impl IntoIterator<Item = W>,
    access: &ReadAccess<'_>,
) -> Result<FinishedCommand, StepError> {
    let run = Run::new(words).quiet().timeout(LOOKING).limit(64 << 20);
    Ok(run.run(access)?)
}

/// Runs a tool that changes something and must succeed.
pub(crate) fn act(
    run: &Run,
    what: &str,
    write_access: &WriteAccess<'_>,
) -> Result<FinishedCommand, StepError> {
    let done = run.run(write_access)?;
    if done.succeeded() {
        Ok(done)
    } else {
        Err(complaint(what, &done))
    }
}

/// Returns the error of a failed tool: how it ended, and its last lines.
pub(crate) fn complaint(what: &str, done: &FinishedCommand) -> StepError {
    let said = match done.stderr_text() {
        text if text.trim().is_empty() => done.stdout_text(),
        text => text,
    };
    let said: Vec<&str> = (said.lines().map(str::trim))
        .filter(|line| !line.is_empty())
        .collect();
    let last = said[said.len().saturating_sub(COMPLAINT)..].join("; ");
    let ending = done.ending();
    if last.is_empty() {
        StepError::new(format!("{what} failed with {ending}"))
    } else {
        StepError::new(format!("{what} failed with {ending}: {last}"))
    }
}

/// Returns true if a program of this name is on the search path for tools.
pub(crate) fn exists(program: &str) -> bool {
    let given = std::env::var_os("PATH").unwrap_or_default();
    let usual = [
        "/usr/local/sbin",
        "/usr/sbin",
        "/sbin",
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
    ];
    std::env::split_paths(&given)
        .chain(usual.map(Into::into))
        .any(|directory| Path::new(&directory).join(program).is_file())
}
