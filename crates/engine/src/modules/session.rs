//! A conversation with a module's process: one line of JSON each way.
//!
//! Everything is bounded: how long an answer may take, how long it may be, and
//! what is kept of the standard error. The process leads a group of its own,
//! and the whole group ends with the session.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde_json::Value;

use crate::{Sight, Stream};

/// The longest answer.
const LONGEST: usize = 16 << 20;
/// Kept of the standard error, for the message when the process dies.
const LAST_WORDS: usize = 2 << 10;
/// Between closing its input and ending it.
const GRACE: Duration = Duration::from_secs(1);
/// How long a program may be busy being written (by a fork in another thread).
const BUSY: Duration = Duration::from_secs(5);

/// Why there is no answer. Reads on after the name of the module.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("cannot be started")]
    Start(#[source] io::Error),
    #[error("does not speak a protocol that is spoken here")]
    Protocol,
    #[error("describes other types than those that were signed")]
    OtherTypes,
    #[error("did not answer in time and was ended")]
    Late,
    #[error("was interrupted")]
    Interrupted,
    #[error("ended before it answered{}", last_words(.0))]
    Died(String),
    #[error("answered what is not JSON: `{0}`")]
    Garbage(String),
    #[error("answered more than {} MiB", LONGEST >> 20)]
    TooLong,
    #[error("spoke without being asked: `{0}`")]
    Unasked(String),
    #[error("says: {0}")]
    Told(String),
    #[error("cannot be talked with")]
    Follow(#[source] io::Error),
}

fn last_words(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// A running process. Dropping it ends it and all that it started.
pub(super) struct Session {
    child: Child,
    exit: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    /// What came behind the last answer.
    ahead: Vec<u8>,
    last_words: Vec<u8>,
    line: Vec<u8>,
    asked: u64,
}

impl Session {
    pub(super) fn start(directory: &Path, command: &[String]) -> Result<Self, AskError> {
        let (program, arguments) = command.split_first().expect("a checked manifest has one");
        let mut command = Command::new(directory.join(program));
        command
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("LANG", "C.UTF-8")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = spawned(&mut command).map_err(AskError::Start)?;
        match Self::of(&mut child) {
            Ok((exit, stdin, stdout, stderr)) => Ok(Self {
                child,
                exit,
                stdin: Some(stdin),
                stdout,
                stderr: Some(stderr),
                ahead: Vec::new(),
                last_words: Vec::new(),
                line: Vec::new(),
                asked: 0,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(AskError::Start(error))
            }
        }
    }

    fn of(child: &mut Child) -> io::Result<(OwnedFd, ChildStdin, ChildStdout, ChildStderr)> {
        let exit = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        let stderr = child.stderr.take().expect("piped");
        for pipe in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok((exit, stdin, stdout, stderr))
    }

    /// Asks one thing. After any error but [`AskError::Told`] the session is
    /// of no use any more.
    pub(super) fn ask(
        &mut self,
        mut request: Value,
        deadline: Instant,
        sight: &Sight<'_>,
    ) -> Result<Value, AskError> {
        if !self.ahead.is_empty() {
            return Err(AskError::Unasked(shortened(&self.ahead)));
        }
        self.asked += 1;
        request["id"] = Value::from(self.asked);
        let mut question = serde_json::to_vec(&request).expect("a request is plain data");
        question.push(b'\n');
        let line = self.exchange(&question, deadline, sight)?;
        let garbage = |_| AskError::Garbage(shortened(&line));
        let answer: Value = serde_json::from_slice(&line).map_err(garbage)?;
        if answer.get("id").and_then(Value::as_u64) != Some(self.asked) {
            return Err(AskError::Unasked(shortened(&line)));
        }
        match answer.get("error") {
            Some(Value::String(error)) => Err(AskError::Told(shortened(error.as_bytes()))),
            Some(other) if !other.is_null() => {
                Err(AskError::Told(shortened(other.to_string().as_bytes())))
            }
            _ => Ok(answer),
        }
    }

    /// Writes the question while it reads, as a module may write before it
    /// has read all, and returns one line.
    fn exchange(
        &mut self,
        mut question: &[u8],
        deadline: Instant,
        sight: &Sight<'_>,
    ) -> Result<Vec<u8>, AskError> {
        loop {
            let exited = self.wait(!question.is_empty(), deadline, sight)?;
            self.read_stderr(sight);
            let open = self.read_stdout()?;
            if let Some(end) = self.ahead.iter().position(|byte| *byte == b'\n') {
                let rest = self.ahead.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.ahead, rest);
                line.pop();
                return Ok(line);
            }
            if self.ahead.len() > LONGEST {
                return Err(AskError::TooLong);
            }
            if exited || !open {
                self.read_stderr(sight);
                let words = String::from_utf8_lossy(&self.last_words).into_owned();
                return Err(AskError::Died(words));
            }
            question = self.write(question)?;
        }
    }

    /// Waits until something can be done. Says whether the process has ended.
    fn wait(&self, writes: bool, deadline: Instant, sight: &Sight<'_>) -> Result<bool, AskError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(AskError::Late);
        }
        let cancel = sight.cancellation().readable();
        let mut files = vec![
            PollFd::new(&self.exit, PollFlags::IN),
            PollFd::new(&cancel, PollFlags::IN),
            PollFd::from_borrowed_fd(self.stdout.as_fd(), PollFlags::IN),
        ];
        if let Some(stderr) = &self.stderr {
            files.push(PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::IN));
        }
        if let Some(stdin) = self.stdin.as_ref().filter(|_| writes) {
            files.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT));
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(AskError::Follow(error.into())),
        }
        if !files[1].revents().is_empty() {
            return Err(AskError::Interrupted);
        }
        Ok(!files[0].revents().is_empty())
    }

    fn write<'a>(&mut self, question: &'a [u8]) -> Result<&'a [u8], AskError> {
        let Some(stdin) = self.stdin.as_mut().filter(|_| !question.is_empty()) else {
            return Ok(question);
        };
        match stdin.write(question) {
            Ok(count) => Ok(&question[count..]),
            Err(error) if would_wait(&error) => Ok(question),
            // It closed its input, or is gone: its output says which.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.stdin = None;
                Ok(question)
            }
            Err(error) => Err(AskError::Follow(error)),
        }
    }

    /// Reads what is there. Says whether more can come.
    fn read_stdout(&mut self) -> Result<bool, AskError> {
        let mut buffer = [0; 16 << 10];
        while self.ahead.len() <= LONGEST {
            match self.stdout.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => self.ahead.extend_from_slice(&buffer[..count]),
                Err(error) if would_wait(&error) => break,
                Err(error) => return Err(AskError::Follow(error)),
            }
        }
        Ok(true)
    }

    /// Tells each line, and keeps the last of it.
    fn read_stderr(&mut self, sight: &Sight<'_>) {
        let mut buffer = [0; 4 << 10];
        // A share only: a program that prints without end has its deadline too.
        for _ in 0..64 {
            let Some(stderr) = &mut self.stderr else {
                return;
            };
            match stderr.read(&mut buffer) {
                Ok(0) => self.stderr = None,
                Ok(count) => self.hear(&buffer[..count], sight),
                Err(error) if would_wait(&error) => return,
                Err(_) => self.stderr = None,
            }
        }
    }

    fn hear(&mut self, bytes: &[u8], sight: &Sight<'_>) {
        self.last_words.extend_from_slice(bytes);
        let over = self.last_words.len().saturating_sub(LAST_WORDS);
        self.last_words.drain(..over);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LAST_WORDS {
                let line = String::from_utf8_lossy(&self.line);
                sight.output(Stream::Stderr, line.trim_end());
                self.line.clear();
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A good module ends when its input does.
        self.stdin = None;
        let idle = self.ahead.is_empty();
        if idle {
            let mut files = [PollFd::new(&self.exit, PollFlags::IN)];
            let grace = Timespec::try_from(GRACE).ok();
            let _ = poll(&mut files, grace.as_ref());
        }
        // The leader is not reaped yet, so its number cannot mean another group.
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A fork in another thread may hold the fresh file open for a moment.
fn spawned(command: &mut Command) -> io::Result<Child> {
    let deadline = Instant::now() + BUSY;
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

fn would_wait(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn shortened(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
