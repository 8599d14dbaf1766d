//! A child program that runs only while a lease is held.
//!
//! The kernel ends the program when this process dies, even by `kill -9`. This process ends it when
//! the lease is lost. The program's output is passed through, and the end of it is kept for later
//! queries.

use std::future::Future;
use std::io::IsTerminal;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_process::{Child, Program, Signal, Tail, shell_code};
use bunraku_wire::ClientError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::failure::Failure;

/// The number of bytes kept from the end of the output.
const KEPT: usize = 64 * 1024;

/// The time between asking a program to end and killing it.
const GRACE: Duration = Duration::from_secs(10);

/// The program to run.
pub(crate) struct Job {
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The document for standard input; the output is then kept. Without it, the program has this
    /// process's own terminal.
    pub(crate) document: Option<Vec<u8>>,
}

/// The way in which a program ended.
pub(crate) enum Ended {
    /// It exited, or a signal ended it (128 plus the signal's number).
    Exit(u8),
    /// The lease was lost, so the program was ended.
    Lost(String),
}

/// The end of the output.
#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<Printed>>);

struct Printed {
    tail: Tail,
    /// Output was added since it was last taken.
    grew: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Printed {
            tail: Tail::new(KEPT),
            grew: false,
        })))
    }
}

impl Log {
    fn lock(&self) -> std::sync::MutexGuard<'_, Printed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: &[u8]) {
        let mut printed = self.lock();
        printed.tail.push(bytes);
        printed.grew = true;
    }

    pub(crate) fn text(&self) -> String {
        self.lock().tail.text()
    }

    /// Returns the text if it has grown since the last call.
    pub(crate) fn news(&self) -> Option<String> {
        let mut printed = self.lock();
        std::mem::take(&mut printed.grew).then(|| printed.tail.text())
    }
}

/// Runs a program for as long as `renew` succeeds, often enough for a lease of `ttl`.
///
/// `granted` is the time at which the lease was requested: it lives at least `ttl` from then.
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
    // On a terminal, a process in its own group could not read from it.
    let grouped = job.document.is_some() || !std::io::stdin().is_terminal();
    let mut child = start(job, log, grouped)?;
    let lost = keep(ttl, granted, renew);
    tokio::pin!(lost);
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            status = child.process.wait() => {
                let code = shell_code(status?);
                child.drain().await;
                return Ok(Ended::Exit(code));
            }
            why = &mut lost => {
                child.end().await?;
                return Ok(Ended::Lost(why));
            }
            signal = signals.next() => child.process.signal(signal),
        }
    }
}

/// Renews until the lease is lost. Returns the reason.
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
                // An unreachable server may be back before the lease ends.
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
    let mut program = Program::new(std::env::current_exe()?)
        .args(["bound", "--parent", &std::process::id().to_string(), "--"])
        .args(&job.words)
        .background_may_stay();
    for (name, value) in job.environment {
        program = program.env(name, value);
    }
    program = match job.document.is_some() {
        true => program.stdin(Stdio::piped()),
        false => program
            .stdin(Stdio::inherit())
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit()),
    };
    if !grouped {
        program = program.in_our_group();
    }
    let mut process = program.start()?;
    let mut pumps = Vec::new();
    if let (Some(mut stdin), Some(document)) = (process.stdin.take(), job.document) {
        // A program that does not read its input is not a failure.
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

/// Opens this process's own output for writes that do not block other work when its reader is slow.
fn own(output: impl std::os::fd::AsFd) -> Result<tokio::fs::File, Failure> {
    let owned = output.as_fd().try_clone_to_owned()?;
    Ok(tokio::fs::File::from_std(std::fs::File::from(owned)))
}

async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, log: Log) {
    let mut buffer = [0; 8 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        log.add(&buffer[..count]);
        // The reader of this output may be gone. The log is still needed.
        let _ = to.write_all(&buffer[..count]).await;
        let _ = to.flush().await;
    }
}

impl Running {
    /// Reads the rest of the pipes. Does not wait for a grandchild that keeps them open.
    async fn drain(&mut self) {
        let all = futures::future::join_all(self.pumps.drain(..));
        let _ = tokio::time::timeout(Duration::from_secs(1), all).await;
    }

    async fn end(&mut self) -> Result<(), Failure> {
        self.process.end(GRACE).await?;
        self.drain().await;
        Ok(())
    }
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
