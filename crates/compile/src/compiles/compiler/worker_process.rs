//! One warm worker process: a line in, a line out.
//!
//! Instead of an answer, a worker may write a question about other nodes. Then
//! it gets one line with the answer, and may ask again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_process::{Child, Program, Tail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use super::code_worker::AnswerWorker;

/// Maximum number of bytes kept of its messages; the end is kept.
const MOST_WORDS: usize = 8 << 10;
/// Time limit for reading its last messages after it has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time for an unneeded process to exit before it is killed.
const FAREWELL: Duration = Duration::from_secs(2);

/// Maximum number of processes whose memory is counted.
const MOST_COUNTED: usize = 100;

/// A line with a question.
#[derive(serde::Deserialize)]
struct QuestionLine {
    ask: serde_json::Value,
}

/// Returns the question in a line, if there is one.
fn question(line: &[u8]) -> Option<serde_json::Value> {
    if !line.starts_with(br#"{"ask":"#) {
        return None;
    }
    let line: QuestionLine = serde_json::from_slice(line).ok()?;
    Some(line.ask)
}

async fn reply(question: serde_json::Value, answers: Option<&dyn AnswerWorker>) -> String {
    let answer = match answers {
        None => Err("there is no index to query".to_owned()),
        Some(answers) => answers.answer(question).await,
    };
    let reply = match answer {
        Ok(answer) => serde_json::json!({ "answer": answer }),
        Err(error) => serde_json::json!({ "error": error }),
    };
    reply.to_string()
}

/// The environment of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkerEnvironment {
    Empty,
    /// The variables of this process that programs usually need.
    Usual,
    /// The usual ones, with `/tmp` for everything that belongs to a user.
    Isolated,
}

/// A program that serves as a worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCommand {
    /// The program's name in messages.
    pub(crate) name: String,
    pub(crate) words: Vec<OsString>,
    pub(crate) directory: PathBuf,
    pub(crate) environment: WorkerEnvironment,
    /// The first line that it reads.
    pub(crate) greeting: Option<String>,
}

impl WorkerCommand {
    /// A command that works in the tree. `./compile` is a file of the commit;
    /// `compile` is searched for in PATH.
    pub(crate) fn in_tree(tree: &Path, words: &[String]) -> Self {
        Self {
            name: words.first().cloned().unwrap_or_default(),
            words: below(tree, words),
            directory: tree.to_owned(),
            environment: WorkerEnvironment::Usual,
            greeting: None,
        }
    }
}

/// Returns the words with the path of a program that is a file of the commit.
pub(crate) fn below(tree: &Path, words: &[String]) -> Vec<OsString> {
    let (program, arguments) = words.split_first().expect("checked when it was read");
    let program: OsString = if program.contains('/') {
        tree.join(program).into()
    } else {
        program.into()
    };
    let arguments = arguments.iter().map(OsString::from);
    std::iter::once(program).chain(arguments).collect()
}

/// Errors in one exchange. The worker is not used again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("cannot start the compiler `{program}`: {source}")]
    Start {
        program: String,
        source: std::io::Error,
    },
    #[error("the compiler did not answer within {} s", .0.as_secs())]
    TimeOut(Duration),
    #[error("the compiler ended without an answer")]
    Ended(ExitStatus),
    #[error("the compiler's answer exceeds {0} bytes")]
    TooLong(u64),
    #[error("the compiler closed its output without an answer")]
    Closed,
}

/// A started process that answers requests.
pub(crate) struct WorkerProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    words: Arc<Mutex<Tail>>,
    /// Ends when the process closes its standard error.
    listening: tokio::task::JoinHandle<()>,
    /// The first line, until it is sent.
    greeting: Option<String>,
    pub answered: u64,
}

impl WorkerProcess {
    pub(crate) fn start(command: &WorkerCommand) -> Result<Self, WorkerError> {
        let (program, arguments) = command.words.split_first().expect("a program");
        let mut process = Program::new(program)
            .args(arguments)
            .current_dir(&command.directory)
            .env_clear()
            .stdin(Stdio::piped());
        if command.environment == WorkerEnvironment::Isolated {
            // Nobody else could end it: it is another user's, in a world of its own.
            process = process.ends_with_us();
        }
        for (name, value) in environment(command.environment) {
            process = process.env(name, value);
        }
        let started = process.start().map_err(|source| WorkerError::Start {
            program: command.name.clone(),
            source,
        });
        let mut worker = Self::from_child(started?);
        worker.greeting = command.greeting.as_ref().map(|line| format!("{line}\n"));
        Ok(worker)
    }

    fn from_child(mut child: Child) -> Self {
        let words = Arc::new(Mutex::new(Tail::new(MOST_WORDS)));
        let mut errors = child.stderr.take().expect("piped");
        let heard = Arc::clone(&words);
        let listening = tokio::spawn(async move {
            let mut buffer = [0; 4_096];
            while let Ok(count) = errors.read(&mut buffer).await {
                if count == 0 {
                    return;
                }
                let mut words = heard.lock().unwrap_or_else(PoisonError::into_inner);
                words.push(&buffer[..count]);
            }
        });
        Self {
            input: child.stdin.take().expect("piped"),
            output: BufReader::new(child.stdout.take().expect("piped")),
            words,
            listening,
            greeting: None,
            answered: 0,
            child,
        }
    }

    /// Sends one request and reads one answer. After an error the process is unusable.
    pub(crate) async fn exchange(
        &mut self,
        line: &str,
        time_limit: Duration,
        longest: u64,
        answers: Option<&dyn AnswerWorker>,
    ) -> Result<Vec<u8>, WorkerError> {
        self.take_words();
        let talk = self.talk(line, longest, answers);
        let outcome = tokio::time::timeout(time_limit, talk).await;
        match outcome {
            Ok(Ok(answer)) => {
                self.answered += 1;
                Ok(answer)
            }
            Ok(Err(WorkerError::Closed)) => {
                let ended = tokio::time::timeout(LAST_WORDS, self.child.wait()).await;
                let _ = tokio::time::timeout(LAST_WORDS, &mut self.listening).await;
                Err(match ended {
                    Ok(Ok(status)) => WorkerError::Ended(status),
                    _ => WorkerError::Closed,
                })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.child.kill();
                let _ = tokio::time::timeout(LAST_WORDS, &mut self.listening).await;
                Err(WorkerError::TimeOut(time_limit))
            }
        }
    }

    /// Sends a request, answers the worker's questions, and returns its answer.
    async fn talk(
        &mut self,
        line: &str,
        longest: u64,
        answers: Option<&dyn AnswerWorker>,
    ) -> Result<Vec<u8>, WorkerError> {
        let mut answer = self.ask(line, longest).await?;
        while let Some(question) = question(&answer) {
            let reply = reply(question, answers).await;
            answer = self.ask(&reply, longest).await?;
        }
        Ok(answer)
    }

    async fn ask(&mut self, line: &str, longest: u64) -> Result<Vec<u8>, WorkerError> {
        // If the process has ended, the pipe breaks; its exit status shows the reason.
        let greeting = self.greeting.take().unwrap_or_default();
        let written = async {
            self.input.write_all(greeting.as_bytes()).await?;
            self.input.write_all(line.as_bytes()).await?;
            self.input.write_all(b"\n").await?;
            self.input.flush().await
        };
        // Read concurrently: a worker may answer before it has read everything.
        let mut answer = Vec::new();
        let mut limited = (&mut self.output).take(longest + 1);
        let (_, read) = tokio::join!(written, limited.read_until(b'\n', &mut answer));
        match read {
            Ok(_) if answer.last() == Some(&b'\n') => Ok(answer),
            Ok(_) if answer.len() as u64 > longest => Err(WorkerError::TooLong(longest)),
            Ok(_) | Err(_) => Err(WorkerError::Closed),
        }
    }

    /// Returns the standard error output since the last request.
    pub(crate) fn take_words(&self) -> String {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.take().trim().to_owned()
    }

    /// Returns true if the worker wrote output without a request. Its next
    /// output may belong to anything.
    pub(crate) fn has_unexpected_output(&self) -> bool {
        !self.output.buffer().is_empty()
    }

    /// Returns the bytes of memory that the process and its children use now.
    pub(crate) fn memory(&self) -> Option<u64> {
        let mut open = vec![self.child.id()?];
        let (mut sum, mut count) = (0, 0);
        while let Some(id) = open.pop() {
            count += 1;
            if count > MOST_COUNTED {
                break;
            }
            sum += resident(id).unwrap_or(0);
            let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
            let children = children.unwrap_or_default();
            open.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
        Some(sum)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.has_ended()
    }

    /// Waits a moment for the process to exit on its own.
    pub(crate) async fn dismiss(self) {
        let Self {
            mut child, input, ..
        } = self;
        drop(input);
        let _ = tokio::time::timeout(FAREWELL, child.wait()).await;
    }
}

fn environment(kind: WorkerEnvironment) -> Vec<(&'static str, OsString)> {
    let ours: &[&str] = match kind {
        WorkerEnvironment::Empty => &[],
        WorkerEnvironment::Usual => &["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"],
        WorkerEnvironment::Isolated => &["PATH", "LANG", "LC_ALL", "TZ"],
    };
    let ours = ours
        .iter()
        .filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut all: Vec<_> = ours.collect();
    if kind == WorkerEnvironment::Isolated {
        all.extend(["HOME", "TMPDIR"].map(|name| (name, "/tmp".into())));
    }
    all
}

/// Returns the bytes of memory that a process uses now.
fn resident(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
