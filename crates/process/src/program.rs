//! A program to start: its arguments, its environment and its limits.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::confine::{Confinement, RunAs};
use crate::work::{WorkLog, WorkRecord};

/// A program to start.
///
/// By default, it inherits the environment, reads nothing, and both its outputs are pipes. It leads
/// its own process group.
#[derive(Debug)]
pub struct Program {
    words: Vec<OsString>,
    clears_environment: bool,
    /// Variables to set, in order; `None` removes a variable.
    environment: Vec<(OsString, Option<OsString>)>,
    directory: Option<PathBuf>,
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
    pub(crate) input: Option<Vec<u8>>,
    confinement: Confinement,
    pub(crate) own_group: bool,
    pub(crate) background_may_stay: bool,
    work: Option<WorkLog>,
}

impl Program {
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            words: vec![program.into()],
            clears_environment: false,
            environment: Vec::new(),
            directory: None,
            stdin: Stdio::null(),
            stdout: Stdio::piped(),
            stderr: Stdio::piped(),
            input: None,
            confinement: Confinement::default(),
            own_group: true,
            background_may_stay: false,
            work: None,
        }
    }

    pub fn arg(mut self, word: impl Into<OsString>) -> Self {
        self.words.push(word.into());
        self
    }

    pub fn args<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// Starts the program without our own environment.
    pub fn env_clear(mut self) -> Self {
        self.clears_environment = true;
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), Some(value.into())));
        self
    }

    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), None));
        self
    }

    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = stdout.into();
        self
    }

    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = stderr.into();
        self
    }

    /// Sets the bytes for its standard input, which then ends.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self.stdin = Stdio::piped();
        self
    }

    /// Runs the program as another user or group.
    pub fn run_as(mut self, run_as: RunAs) -> Self {
        self.confinement.run_as = run_as;
        self
    }

    pub fn umask(mut self, umask: u32) -> Self {
        self.confinement.umask = Some(umask);
        self
    }

    /// Makes the kernel kill the program when this process ends, even by `kill -9`.
    pub fn ends_with_us(mut self) -> Self {
        self.confinement.ends_with_us = true;
        self
    }

    /// Keeps the program in our own process group: a program that reads from the terminal has to be
    /// in the foreground. Then only the program itself is ended, not the processes that it starts.
    pub fn in_our_group(mut self) -> Self {
        self.own_group = false;
        self
    }

    /// Keeps the program's background processes running when it ends.
    ///
    /// Without this, the group is killed when its leader has ended.
    pub fn background_may_stay(mut self) -> Self {
        self.background_may_stay = true;
        self
    }

    /// Records the program on disk while it runs, so that a later process can end what is left of
    /// it when this process is killed.
    pub fn recorded(mut self, log: &WorkLog) -> Self {
        self.work = Some(log.clone());
        self
    }

    /// Writes the record. A machine whose disk is full still has to be managed, so the program
    /// starts without one if need be.
    pub(crate) fn begin_record(&mut self) -> Option<WorkRecord> {
        let log = self.work.take()?;
        let record = log.begin(self.name()).ok()?;
        self.environment.push((record.variable(), Some("1".into())));
        Some(record)
    }

    /// Returns the first word, for messages.
    pub fn name(&self) -> &OsStr {
        &self.words[0]
    }

    pub(crate) fn command(self) -> Command {
        let words = self.confinement.wrap(self.words);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if self.clears_environment {
            command.env_clear();
        }
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if self.own_group {
            command.process_group(0);
        }
        command
            .stdin(self.stdin)
            .stdout(self.stdout)
            .stderr(self.stderr);
        command
    }
}
