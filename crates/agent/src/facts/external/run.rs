//! Runs an executable fact within limits.
//!
//! Its environment is minimal. Its process group is killed at the deadline and when it prints too
//! much. Processes that it leaves behind are killed when it ends.

use std::path::Path;
use std::time::Duration;

use bunraku_process::{
    CapturePart, Output, OutputError, OutputLimits, Program, SYSTEM_PATH, describe,
};

use super::file::SIZE_LIMIT;
use super::parse::ParseProblem;

/// The limit for standard error, which is shown and not stored.
const STDERR_LIMIT: usize = 16 * 1024;

/// Returns the problems of a run. Like Facter, we use the facts of an executable that fails or
/// writes to standard error, but we report it.
pub(super) fn problems(output: &Output) -> Vec<ParseProblem> {
    let mut troubles = Vec::new();
    if !output.status.success() {
        let how = describe(output.status);
        let problem = format!("failed with {how}; its output is used");
        troubles.push(ParseProblem::new(&problem, "run it by hand to see why"));
    }
    let said = output.stderr_text();
    if let Some(first) = said.lines().map(str::trim).find(|line| !line.is_empty()) {
        let first: String = first
            .chars()
            .filter(|c| !c.is_control())
            .take(200)
            .collect();
        let problem = format!("printed an error: {first}");
        troubles.push(ParseProblem::new(&problem, "run it by hand to see more"));
    }
    troubles
}

pub(super) fn run(path: &Path, timeout: Duration) -> Result<Output, ParseProblem> {
    let program = Program::new(path)
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .env("LC_ALL", "C")
        .env("LANG", "C")
        .current_dir("/");
    let limits = OutputLimits {
        time: timeout,
        stdout: CapturePart::AtMost(SIZE_LIMIT),
        stderr: CapturePart::First(STDERR_LIMIT),
    };
    program.output_blocking(limits).map_err(|error| {
        let (problem, hint) = match error {
            OutputError::Start(error) => (
                format!("cannot be run: {error}"),
                "check its first line and permissions",
            ),
            OutputError::TimeOut(limit) => (
                format!("was killed: it ran longer than {} s", limit.as_secs_f32()),
                "make it faster, or raise the time limit",
            ),
            OutputError::TooMuch => (
                "was killed: it printed more than 1 MiB".to_owned(),
                "print facts only",
            ),
            OutputError::Follow(error) => (
                format!("was killed: cannot read its output: {error}"),
                "try again",
            ),
        };
        ParseProblem::new(&problem, hint)
    })
}
