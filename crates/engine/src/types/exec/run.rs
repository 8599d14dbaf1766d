//! Running one command: bounded in time, in output, and to its process group.
//!
//! The `process` crate starts and ends programs. This module decides which program
//! runs, as which user, and what happens to it when a run is interrupted.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bunraku_process::{BlockingChild, FollowEnd, Program, RunAs, SYSTEM_PATH, WaitLimits};

use super::output::CommandOutput;
use crate::{ReadAccess, StepError};

/// The size that is kept of each stream by default.
const USUAL_LIMIT: usize = 1 << 20;

/// The time between asking a process group to end and killing it.
const GRACE: Duration = Duration::from_secs(2);

/// A command to run.
#[derive(Clone, Debug)]
pub struct Run {
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    user: Option<String>,
    group: Option<String>,
    umask: Option<u32>,
    timeout: Option<Duration>,
    stdin: Option<Vec<u8>>,
    limit: usize,
    quiet: bool,
    to_the_end: bool,
}

/// A command that ended on its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FinishedCommand {
    /// The exit code, unless a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub pid: u32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// There was more output than the kept part.
    pub cut: bool,
}

/// The reason why a command did not end on its own.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("no command to run")]
    Empty,
    #[error("cannot start `{program}`")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("no {what} `{name}`")]
    Unknown { what: &'static str, name: String },
    #[error("the directory `{0}` does not exist")]
    NoDirectory(PathBuf),
    #[error("it took longer than {} s and was killed", .after.as_secs_f64())]
    Timeout {
        after: Duration,
        output: Box<FinishedCommand>,
    },
    #[error("interrupted")]
    Interrupted,
    #[error("cannot read the output of the command")]
    Follow(#[source] io::Error),
}

impl RunError {
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::Interrupted)
    }
}

impl From<RunError> for StepError {
    fn from(error: RunError) -> Self {
        let interrupted = error.is_interrupted();
        let mut step = StepError::new(error.to_string());
        if let RunError::Start { source, .. } | RunError::Follow(source) = error {
            step = StepError::because(step.to_string(), source);
        }
        step.interrupted = interrupted;
        step
    }
}

/// Returns the words that run this text in a shell.
pub fn shell(text: impl Into<OsString>) -> [OsString; 3] {
    ["/bin/sh".into(), "-c".into(), text.into()]
}

impl FinishedCommand {
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Returns the way it ended: `exit code 2`, `signal 9`.
    pub fn ending(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "an unknown status".to_owned(),
        }
    }

    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl Run {
    /// Creates a command from a program and its arguments, without a shell.
    pub fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Self {
        Self {
            words: words.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            cwd: None,
            user: None,
            group: None,
            umask: None,
            timeout: None,
            stdin: None,
            limit: USUAL_LIMIT,
            quiet: false,
            to_the_end: false,
        }
    }

    /// Returns the same command with other words.
    pub(super) fn words(mut self, words: impl IntoIterator<Item = OsString>) -> Self {
        self.words = words.into_iter().collect();
        self
    }

    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    pub fn umask(mut self, umask: u32) -> Self {
        self.umask = Some(umask);
        self
    }

    /// Sets a timeout. Without one, a command may run for any time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Sets how many bytes of each stream are kept.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Disables events for output lines, for commands that only observe.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Makes an interrupt of the run wait for the command. For commands that leave a
    /// machine half changed when they are cut off (a package manager).
    pub fn to_the_end(mut self) -> Self {
        self.to_the_end = true;
        self
    }

    /// Runs the command until it ends, or a timeout or an interrupt ends it.
    ///
    /// A process that it leaves in the background continues, and its open pipe is not waited for.
    pub fn run(&self, access: &ReadAccess<'_>) -> Result<FinishedCommand, RunError> {
        let program = self.program(access)?;
        let name = program.name().to_string_lossy().into_owned();
        let mut child = program.start_blocking().map_err(|source| RunError::Start {
            program: name,
            source,
        })?;
        let mut heard = CommandOutput::new(self.limit, (!self.quiet).then_some(*access));
        match self.follow(&mut child, &mut heard, access)? {
            FollowEnd::Ended => {
                let pid = child.id();
                let status = child.finish().ok_or_else(|| {
                    RunError::Follow(io::Error::other("cannot wait for it to exit"))
                })?;
                let mut done = heard.finish();
                (done.code, done.signal, done.pid) = (status.code(), status.signal(), pid);
                Ok(done)
            }
            FollowEnd::Late => {
                child.end(GRACE);
                heard.read_rest(&mut child);
                let after = self.timeout.unwrap_or_default();
                let output = Box::new(heard.finish());
                Err(RunError::Timeout { after, output })
            }
            FollowEnd::Cancelled | FollowEnd::Stopped => {
                child.end(GRACE);
                Err(RunError::Interrupted)
            }
        }
    }

    fn follow(
        &self,
        child: &mut BlockingChild,
        heard: &mut CommandOutput<'_>,
        access: &ReadAccess<'_>,
    ) -> Result<FollowEnd, RunError> {
        let until = WaitLimits {
            deadline: self.timeout.map(|timeout| Instant::now() + timeout),
            cancelled: (!self.to_the_end).then(|| access.cancellation().readable()),
        };
        let followed = child.follow(until, |stream, bytes| {
            heard.push(stream, bytes);
            ControlFlow::Continue(())
        });
        followed.map_err(|error| {
            // After any error, no process stays behind.
            child.end(GRACE);
            RunError::Follow(error)
        })
    }

    fn program(&self, access: &ReadAccess<'_>) -> Result<Program, RunError> {
        let (program, arguments) = self.words.split_first().ok_or(RunError::Empty)?;
        if program.is_empty() {
            return Err(RunError::Empty);
        }
        if let Some(cwd) = &self.cwd
            && !cwd.is_dir()
        {
            return Err(RunError::NoDirectory(cwd.clone()));
        }
        let mut program = Program::new(program)
            .args(arguments)
            .env("LC_ALL", "C")
            .env("LANG", "C")
            .background_may_stay()
            .recorded(&access.work_log());
        if std::env::var_os("PATH").is_none() {
            program = program.env("PATH", SYSTEM_PATH);
        }
        if let Some(stdin) = &self.stdin {
            program = program.input(stdin.clone());
        }
        if let Some(umask) = self.umask {
            program = program.umask(umask);
        }
        if let Some(cwd) = &self.cwd {
            program = program.current_dir(cwd);
        }
        let setting = &access.run.commands;
        for (name, value) in &setting.environment {
            program = program.env(name, value);
        }
        if setting.end_with_us {
            program = program.ends_with_us();
        }
        program = self.identified(program)?;
        for (name, value) in &self.environment {
            program = program.env(name, value);
        }
        Ok(program)
    }

    /// Sets the identity that the program runs under.
    fn identified(&self, mut program: Program) -> Result<Program, RunError> {
        let mut run_as = RunAs::default();
        if let Some(user) = &self.user {
            let found = find_user(user)?;
            run_as.uid = Some(found.uid());
            run_as.gid = Some(found.primary_group_id());
            program = program
                .env("USER", found.name())
                .env("LOGNAME", found.name())
                .env("HOME", uzers::os::unix::UserExt::home_dir(&found));
        }
        if let Some(group) = &self.group {
            run_as.gid = Some(find_group(group)?);
        }
        Ok(program.run_as(run_as))
    }
}

fn find_user(name: &str) -> Result<uzers::User, RunError> {
    let by_name = uzers::get_user_by_name(name);
    let found = by_name.or_else(|| uzers::get_user_by_uid(name.parse().ok()?));
    found.ok_or_else(|| RunError::Unknown {
        what: "user",
        name: name.to_owned(),
    })
}

fn find_group(name: &str) -> Result<u32, RunError> {
    let by_name = uzers::get_group_by_name(name).map(|group| group.gid());
    by_name
        .or_else(|| name.parse().ok())
        .ok_or_else(|| RunError::Unknown {
            what: "group",
            name: name.to_owned(),
        })
}
