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

use bunraku_process::{Child, Program, Signal, Tail, shell_code};
use bunraku_wire::ClientError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
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

/// The end of the output.
#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<Printed>>);

struct Printed {
    tail: Tail,
    /// Something was added since it was last taken.
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

    /// The text, if there is more than when it was last asked for.
    pub(crate) fn news(&self) -> Option<String> {
        let mut printed = self.lock();
        std::mem::take(&mut printed.grew).then(|| printed.tail.text())
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
