//! A conversation with a module's process: one line of JSON each way.
//!
//! Everything is bounded: the time for an answer, its length, and the part of the
//! standard error that is kept. The process leads its own process group, and the whole
//! group ends with the session.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bunraku_process::{
    BlockingChild, LineSplitter, Program, SYSTEM_PATH, Stream as Pipe, Tail, WaitEnd, WaitLimits,
    WorkLog,
};
use serde_json::Value;

use crate::{ReadAccess, Stream};

/// The maximum length of an answer.
const LONGEST: usize = 16 << 20;
/// The size of the kept end of standard error, for the message when the process dies.
const LAST_WORDS: usize = 2 << 10;
/// The time between closing the process's input and killing it.
const GRACE: Duration = Duration::from_secs(1);

/// The reason why there is no answer. The text follows the name of the module.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("cannot be started")]
    Start(#[source] io::Error),
    #[error("does not support a known protocol version")]
    Protocol,
    #[error("describes types that differ from the signed ones")]
    OtherTypes,
    #[error("did not answer in time and was killed")]
    Late,
    #[error("was interrupted")]
    Interrupted,
    #[error("exited before it answered{}", last_words(.0))]
    Died(String),
    #[error("answered with invalid JSON: `{0}`")]
    Garbage(String),
    #[error("answered with more than {} MiB", LONGEST >> 20)]
    TooLong,
    #[error("sent an unexpected message: `{0}`")]
    Unasked(String),
    #[error("reported: {0}")]
    Told(String),
    #[error("cannot be reached")]
    Follow(#[source] io::Error),
}

fn last_words(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// A running process. Dropping it ends it and all processes that it started.
pub(super) struct Session {
    child: BlockingChild,
    /// Bytes that arrived after the last answer.
    ahead: Vec<u8>,
    complaints: Complaints,
    asked: u64,
}

/// The process's standard error: reported line by line, with its end kept.
struct Complaints {
    last_words: Tail,
    lines: LineSplitter,
}

impl Session {
    pub(super) fn start(
        directory: &Path,
        command: &[String],
        work: &WorkLog,
    ) -> Result<Self, SessionError> {
        let (program, arguments) = command.split_first().expect("a checked manifest has one");
        let program = Program::new(directory.join(program))
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .env("PATH", SYSTEM_PATH)
            .env("LANG", "C.UTF-8")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::piped())
            .recorded(work);
        Ok(Self {
            child: program.start_blocking().map_err(SessionError::Start)?,
            ahead: Vec::new(),
            complaints: Complaints {
                last_words: Tail::new(LAST_WORDS),
                lines: LineSplitter::new(LAST_WORDS),
            },
            asked: 0,
        })
    }

    /// Sends one request. After any error except [`SessionError::Told`] the session is unusable.
    pub(super) fn ask(
        &mut self,
        mut request: Value,
        deadline: Instant,
        access: &ReadAccess<'_>,
    ) -> Result<Value, SessionError> {
        if !self.ahead.is_empty() {
            return Err(SessionError::Unasked(shortened(&self.ahead)));
        }
        self.asked += 1;
        request["id"] = Value::from(self.asked);
        let mut question = serde_json::to_vec(&request).expect("a request is plain data");
        question.push(b'\n');
        let line = self.exchange(&question, deadline, access)?;
        let garbage = |_| SessionError::Garbage(shortened(&line));
        let answer: Value = serde_json::from_slice(&line).map_err(garbage)?;
        if answer.get("id").and_then(Value::as_u64) != Some(self.asked) {
            return Err(SessionError::Unasked(shortened(&line)));
        }
        match answer.get("error") {
            Some(Value::String(error)) => Err(SessionError::Told(shortened(error.as_bytes()))),
            Some(other) if !other.is_null() => {
                Err(SessionError::Told(shortened(other.to_string().as_bytes())))
            }
            _ => Ok(answer),
        }
    }

    /// Writes the request while it reads, as a module may write before it has read
    /// everything. Returns one line.
    fn exchange(
        &mut self,
        question: &[u8],
        deadline: Instant,
        access: &ReadAccess<'_>,
    ) -> Result<Vec<u8>, SessionError> {
        self.child.push_input(question);
        loop {
            let until = WaitLimits {
                deadline: Some(deadline),
                cancelled: Some(access.cancellation().readable()),
            };
            let woken = self.child.wait(until).map_err(SessionError::Follow)?;
            match woken {
                WaitEnd::Late => return Err(SessionError::Late),
                WaitEnd::Cancelled => return Err(SessionError::Interrupted),
                WaitEnd::Ready | WaitEnd::Ended => {}
            }
            self.read_stderr(access);
            let open = self.read_stdout();
            if let Some(end) = self.ahead.iter().position(|byte| *byte == b'\n') {
                let rest = self.ahead.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.ahead, rest);
                line.pop();
                return Ok(line);
            }
            if self.ahead.len() > LONGEST {
                return Err(SessionError::TooLong);
            }
            if woken == WaitEnd::Ended || !open {
                self.read_stderr(access);
                return Err(SessionError::Died(self.complaints.last_words.text()));
            }
            self.child.write().map_err(SessionError::Follow)?;
        }
    }

    /// Reads the available output. Returns true if more can come.
    fn read_stdout(&mut self) -> bool {
        let ahead = &mut self.ahead;
        self.child.read(Pipe::Stdout, |bytes| {
            ahead.extend_from_slice(bytes);
            if ahead.len() > LONGEST {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    }

    fn read_stderr(&mut self, access: &ReadAccess<'_>) {
        let Complaints { last_words, lines } = &mut self.complaints;
        self.child.read(Pipe::Stderr, |bytes| {
            last_words.push(bytes);
            lines.push(bytes, |line| access.output(Stream::Stderr, line.trim_end()));
            ControlFlow::Continue(())
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A well-behaved module ends when its input does.
        self.child.close_input();
        if self.ahead.is_empty() {
            self.child.wait_for_exit(GRACE);
        }
        self.child.finish();
    }
}

fn shortened(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
