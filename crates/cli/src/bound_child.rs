//! A program that runs on borrowed time: while a lease lives, and no longer.
//!
//! The kernel ends it when this process dies, even by `kill -9`; this process
//! ends it when the lease is lost. What it prints is passed on, and the end of
//! it is kept for whoever asks later.

use std::future::Future;
use std::io::IsTerminal;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_wire::ClientError;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::failure::Failure;

/// The end of the output that is kept.
const KEPT: usize = 64 * 1024;

/// How long a program has between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(10);

/// What to run.
pub(crate) struct Job {
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Given on standard input, and the output is kept. Without it, the
    /// program has this process's own terminal.
    pub(crate) document: Option<Vec<u8>>,
}

/// How it ended.
pub(crate) enum Ended {
    /// By itself, or by a signal (128 and the signal's number).
    Exit(u8),
    /// The lease was lost, and the program was ended for it.
    Lost(String),
}

/// The end of what was printed.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Tail>>);

#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    /// Something was added since it was last taken.
    grew: bool,
}

impl Log {
    fn add(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.bytes.extend_from_slice(bytes);
        let surplus = tail.bytes.len().saturating_sub(KEPT);
        // Now and then, not for every line.
        if surplus > KEPT {
            tail.bytes.drain(..surplus);
        }
        tail.grew = true;
    }

    pub(crate) fn text(&self) -> String {
        let tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let start = tail.bytes.len().saturating_sub(KEPT);
        String::from_utf8_lossy(&tail.bytes[start..]).into_owned()
    }

    /// The text, if there is more than when it was last asked for.
    pub(crate) fn news(&self) -> Option<String> {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut tail.grew).then(|| {
            drop(tail);
            self.text()
        })
    }
}

/// Runs a program for as long as `renew` succeeds, often enough for a lease of `ttl`.
///
/// `granted` is when the lease was asked for: it lives at least `ttl` from then.
pub(crate) async fn run<R, F>(
    job: Job,
    log: &Log,
    ttl: Duration,
    granted: Instant,
    renew: R,
) -> Result<Ended, Failure>
where
    R: Fn() -> F + 'static,
    F: Future<Output = Result<(), ClientError>>,
{
    // On a terminal, a group of its own could not read from it.
    let grouped = job.document.is_some() || !std::io::stdin().is_terminal();
    let mut child = start(job, log, grouped)?;
    let lost = keep(ttl, granted, renew);
    tokio::pin!(lost);
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            status = child.process.wait() => {
                let code = exit_code(status?);
                child.drain().await;
                return Ok(Ended::Exit(code));
            }
            why = &mut lost => {
                child.end(grouped).await?;
                return Ok(Ended::Lost(why));
            }
            signal = signals.next() => child.signal(signal, grouped),
        }
    }
}

/// Renews until the lease is lost; says why it is.
async fn keep<R, F>(ttl: Duration, granted: Instant, renew: R) -> String
where
    R: Fn() -> F,
    F: Future<Output = Result<(), ClientError>>,
{
    let mut lives_until = granted + ttl;
    let mut pause = ttl / 3;
    loop {
        let next = (Instant::now() + pause).min(lives_until);
        tokio::time::sleep_until(next).await;
        let asked = Instant::now();
        match tokio::time::timeout_at(lives_until, renew()).await {
            Ok(Ok(())) => {
                lives_until = asked + ttl;
                pause = ttl / 3;
            }
            Ok(Err(error)) if matches!(error.status(), Some(400..=404 | 409)) => {
                return error.to_string();
            }
            outcome => {
                if Instant::now() >= lives_until {
                    return match outcome {
                        Ok(Err(error)) => format!("the lease could not be renewed: {error}"),
                        _ => "the lease could not be renewed in time".to_owned(),
                    };
                }
                // A server that is away may be back before the lease ends.
                pause = ttl / 20;
            }
        }
    }
}

struct Running {
    process: Child,
    pumps: Vec<JoinHandle<()>>,
}

fn start(job: Job, log: &Log, grouped: bool) -> Result<Running, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["bound", "--parent", &std::process::id().to_string(), "--"])
        .args(&job.words)
        .envs(job.environment)
        .kill_on_drop(true);
    if job.document.is_some() {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }
    if grouped {
        command.process_group(0);
    }
    let mut process = command.spawn()?;
    let mut pumps = Vec::new();
    if let (Some(mut stdin), Some(document)) = (process.stdin.take(), job.document) {
        // A program that does not read its input is no failure.
        pumps.push(tokio::spawn(async move {
            let _ = stdin.write_all(&document).await;
        }));
    }
    if let Some(stdout) = process.stdout.take() {
        pumps.push(tokio::spawn(pump(
            stdout,
            own(std::io::stdout())?,
            log.clone(),
        )));
    }
    if let Some(stderr) = process.stderr.take() {
        pumps.push(tokio::spawn(pump(
            stderr,
            own(std::io::stderr())?,
            log.clone(),
        )));
    }
    Ok(Running { process, pumps })
}

/// Our own output, written without holding anybody up when its reader is slow.
fn own(output: impl std::os::fd::AsFd) -> Result<tokio::fs::File, Failure> {
    let owned = output.as_fd().try_clone_to_owned()?;
    Ok(tokio::fs::File::from_std(std::fs::File::from(owned)))
}

async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, log: Log) {
    let mut buffer = [0; 8 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        log.add(&buffer[..count]);
        // Whoever read our output may have gone; the log is still wanted.
        let _ = to.write_all(&buffer[..count]).await;
        let _ = to.flush().await;
    }
}

impl Running {
    /// What is still in the pipes. A grandchild that keeps them open is not waited for.
    async fn drain(&mut self) {
        let all = futures::future::join_all(self.pumps.drain(..));
        let _ = tokio::time::timeout(Duration::from_secs(1), all).await;
    }

    fn signal(&self, signal: Signal, grouped: bool) {
        let Some(pid) = self
            .process
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
        else {
            return;
        };
        // It may have ended a moment ago.
        let _ = match grouped {
            true => kill_process_group(pid, signal),
            false => kill_process(pid, signal),
        };
    }

    async fn end(&mut self, grouped: bool) -> Result<(), Failure> {
        self.signal(Signal::TERM, grouped);
        if tokio::time::timeout(GRACE, self.process.wait())
            .await
            .is_err()
        {
            self.signal(Signal::KILL, grouped);
            self.process.wait().await?;
        }
        self.drain().await;
        Ok(())
    }
}

fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    u8::try_from(code).unwrap_or(1)
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, std::io::Error> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}
