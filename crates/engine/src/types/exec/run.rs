//! Running one command: bounded in time, in output, and to its process group.
//!
//! No `unsafe` and so no code between fork and exec: another user comes from
//! `setpriv` (which also sets the supplementary groups; the standard library
//! alone would drop them), a umask from a one-line shell.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::pump::Pump;
use crate::{Cancellation, Sight, StepError};

/// Kept of each stream when nothing else is said.
const USUAL_LIMIT: usize = 1 << 20;

/// Between asking a process group to end and ending it.
const GRACE: Duration = Duration::from_secs(2);

const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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

/// A command that ended by itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// The exit code, unless a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub pid: u32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// There was more output than is kept.
    pub cut: bool,
}

/// Why a command did not end by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("there is no command to run")]
    Empty,
    #[error("cannot start `{program}`")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("there is no {what} `{name}`")]
    Unknown { what: &'static str, name: String },
    #[error("`{0}` cannot be reached: no such directory")]
    NoDirectory(PathBuf),
    #[error("it took longer than {} s and was ended", .after.as_secs_f64())]
    Timeout { after: Duration, output: Box<Done> },
    #[error("interrupted")]
    Interrupted,
    #[error("cannot follow the command")]
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

/// The words that have a shell run this text.
pub fn shell(text: impl Into<OsString>) -> [OsString; 3] {
    ["/bin/sh".into(), "-c".into(), text.into()]
}

impl Done {
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// `exit code 2`, `signal 9`.
    pub fn ending(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "an unknown end".to_owned(),
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
    /// A program and its arguments, without a shell.
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

    /// The same with other words.
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

    /// Without one, a command may take as long as it likes.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// How many bytes of each stream are kept.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Tells no output lines as events: for commands that only look.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// An interrupt of the run waits for the command: for those that leave a
    /// machine half changed when they are cut off (a package manager).
    pub fn to_the_end(mut self) -> Self {
        self.to_the_end = true;
        self
    }

    /// Runs it to its end, which a timeout or an interrupt may bring.
    ///
    /// A process that it leaves in the background is left alone, and its open
    /// pipe is not waited for.
    pub fn run(&self, sight: &Sight<'_>) -> Result<Done, RunError> {
        let mut command = self.command()?;
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .spawn()
            .map_err(|source| RunError::Start { program, source })?;
        let writer = self.feed(&mut child);
        let followed = self.follow(&mut child, sight);
        if followed.is_err() {
            // Whatever went wrong, nothing stays behind.
            end_group(&mut child);
        }
        if let Some(writer) = writer {
            // The reading end is closed by now, or a background process holds
            // it: then the thread ends with that process.
            if writer.is_finished() {
                let _ = writer.join();
            }
        }
        followed
    }

    fn feed(&self, child: &mut Child) -> Option<std::thread::JoinHandle<()>> {
        let mut pipe = child.stdin.take()?;
        let bytes = self.stdin.clone()?;
        Some(std::thread::spawn(move || {
            // A command that does not read its input is its own affair.
            let _ = io::Write::write_all(&mut pipe, &bytes);
        }))
    }

    fn follow(&self, child: &mut Child, sight: &Sight<'_>) -> Result<Done, RunError> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut pump = Pump::new(child, self.limit, (!self.quiet).then_some(*sight))
            .map_err(RunError::Follow)?;
        let never =
            (self.to_the_end.then(Cancellation::new).transpose()).map_err(RunError::Follow)?;
        let ended = pump
            .until_exit(never.as_ref().unwrap_or(sight.cancellation()), deadline)
            .map_err(RunError::Follow)?;
        match ended {
            super::pump::Ended::Exited => {
                let status = child.wait().map_err(RunError::Follow)?;
                let mut done = pump.finish();
                (done.code, done.signal, done.pid) = (status.code(), status.signal(), child.id());
                Ok(done)
            }
            super::pump::Ended::Cancelled => Err(RunError::Interrupted),
            super::pump::Ended::Late => {
                end_group(child);
                let after = self.timeout.unwrap_or_default();
                let output = Box::new(pump.finish());
                Err(RunError::Timeout { after, output })
            }
        }
    }

    fn command(&self) -> Result<Command, RunError> {
        let words = self.wrapped()?;
        let (program, arguments) = words.split_first().ok_or(RunError::Empty)?;
        if let Some(cwd) = &self.cwd
            && !cwd.is_dir()
        {
            return Err(RunError::NoDirectory(cwd.clone()));
        }
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.stdin(if self.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command.process_group(0);
        command.env("LC_ALL", "C").env("LANG", "C");
        if std::env::var_os("PATH").is_none() {
            command.env("PATH", USUAL_PATH);
        }
        if let Some(user) = &self.user {
            let found = find_user(user)?;
            command
                .env("USER", found.name())
                .env("LOGNAME", found.name());
            command.env("HOME", uzers::os::unix::UserExt::home_dir(&found));
        }
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        Ok(command)
    }

    /// The words with what sets user, group and umask in front of them.
    fn wrapped(&self) -> Result<Vec<OsString>, RunError> {
        if self.words.is_empty() || self.words[0].is_empty() {
            return Err(RunError::Empty);
        }
        let mut words: Vec<OsString> = Vec::new();
        if self.user.is_some() || self.group.is_some() {
            words.extend(self.privileges()?);
        }
        if let Some(umask) = self.umask {
            words.extend(shell(format!("umask {umask:04o}; exec \"$@\"")));
            words.push("sh".into());
        }
        words.extend(self.words.iter().cloned());
        Ok(words)
    }

    fn privileges(&self) -> Result<Vec<OsString>, RunError> {
        let mut words: Vec<OsString> = vec!["setpriv".into()];
        let mut gid = None;
        if let Some(user) = &self.user {
            let found = find_user(user)?;
            gid = Some(found.primary_group_id());
            words.push(format!("--reuid={}", found.uid()).into());
        }
        if let Some(group) = &self.group {
            gid = Some(find_group(group)?);
        }
        if let Some(gid) = gid {
            words.push(format!("--regid={gid}").into());
        }
        // Supplementary groups follow the user; with only a group given, they go.
        words.push(
            if self.user.is_some() {
                "--init-groups"
            } else {
                "--clear-groups"
            }
            .into(),
        );
        words.push("--".into());
        Ok(words)
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

/// Asks the whole group to end, and ends it when it does not.
fn end_group(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
    let deadline = Instant::now() + GRACE;
    let leader = rustix::process::pidfd_open(group, rustix::process::PidfdFlags::empty());
    if let Ok(leader) = leader {
        let mut files = [rustix::event::PollFd::new(
            &leader,
            rustix::event::PollFlags::IN,
        )];
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::event::Timespec::try_from(left).ok();
        let _ = rustix::event::poll(&mut files, timeout.as_ref());
    }
    // Also when the leader has gone: members that ignored the request have not.
    // The leader is not reaped yet, so its number cannot mean another group.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}
