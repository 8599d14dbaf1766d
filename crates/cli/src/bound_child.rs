//! A child program that runs only while a lease is held.
//!
//! `bunraku bound`, between this process and the program, ends the program and everything that it
//! started when this process dies, even by `kill -9`. This process ends it when the lease is lost. The program's output is passed through, and the end of it is kept for later
//! queries.

use std::future::Future;
use std::io::IsTerminal;
use std::process::Stdio;
use std::time::Duration;

use bunraku_process::{Child, Program, WorkLog, shell_code};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::signals::EndSignals;
use crate::task_log::TaskLog;

/// The time between asking a program to end and killing it.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// The program to run.
pub(crate) struct Job {
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// The document for standard input; the output is then kept. Without it, the program has this
    /// process's own terminal.
    pub(crate) document: Option<Vec<u8>>,
    /// Records the program, for work that another process may have to repeat.
    pub(crate) work: Option<WorkLog>,
}

/// The way in which a program ended.
pub(crate) enum ProgramEnd {
    /// It exited, or a signal ended it (128 plus the signal's number).
    Exit(u8),
    /// The lease was lost, so the program was ended.
    Lost(String),
}

/// Runs a program until it ends, or `lost` resolves with the reason why the lease was lost.
pub(crate) async fn run(
    job: Job,
    log: &TaskLog,
    lost: impl Future<Output = String>,
) -> Result<ProgramEnd, Failure> {
    // On a terminal, a process in its own group could not read from it.
    let grouped = job.document.is_some() || !std::io::stdin().is_terminal();
    let mut child = start(job, log, grouped)?;
    tokio::pin!(lost);
    let mut signals = EndSignals::new()?;
    loop {
        tokio::select! {
            status = child.process.wait() => {
                let code = shell_code(status?);
                child.drain().await;
                return Ok(ProgramEnd::Exit(code));
            }
            why = &mut lost => {
                child.end().await?;
                return Ok(ProgramEnd::Lost(why));
            }
            signal = signals.next() => child.process.signal(signal),
        }
    }
}

struct RunningProgram {
    process: Child,
    pumps: Vec<JoinHandle<()>>,
}

fn start(job: Job, log: &TaskLog, grouped: bool) -> Result<RunningProgram, Failure> {
    let mut program = Program::new(std::env::current_exe()?)
        .args(["bound", "--parent", &std::process::id().to_string(), "--"])
        .args(&job.words)
        .background_may_stay();
    if let Some(work) = &job.work {
        program = program.recorded(work);
    }
    for (name, value) in job.environment {
        program = program.env(name, value);
    }
    program = if job.document.is_some() {
        program.stdin(Stdio::piped())
    } else {
        program
            .stdin(Stdio::inherit())
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit())
    };
    if !grouped {
        program = program.in_our_group();
    }
    let _terminal = crate::waiting::TerminalInUse::new();
    let mut process = program.start()?;
    let mut pumps = Vec::new();
    if let (Some(mut stdin), Some(document)) = (process.stdin.take(), job.document) {
        // A program that does not read its input is not a failure.
        pumps.push(tokio::spawn(async move {
            let _ = stdin.write_all(&document).await;
        }));
    }
    if let Some(stdout) = process.stdout.take() {
        // The output is the program's own, and nothing is added to it.
        crate::json_mode::has_data();
        pumps.push(tokio::spawn(pump(
            stdout,
            open_own_output(std::io::stdout())?,
            log.clone(),
        )));
    }
    if let Some(stderr) = process.stderr.take() {
        pumps.push(tokio::spawn(pump(
            stderr,
            open_own_output(std::io::stderr())?,
            log.clone(),
        )));
    }
    Ok(RunningProgram { process, pumps })
}

/// Opens this process's own output for writes that do not block other work when its reader is slow.
fn open_own_output(output: impl std::os::fd::AsFd) -> Result<tokio::fs::File, Failure> {
    let owned = output.as_fd().try_clone_to_owned()?;
    Ok(tokio::fs::File::from_std(std::fs::File::from(owned)))
}

async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, log: TaskLog) {
    let mut buffer = [0; 8 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        log.add(&buffer[..count]);
        // The reader of this output may be gone. The log is still needed.
        let _ = to.write_all(&buffer[..count]).await;
        let _ = to.flush().await;
    }
}

impl RunningProgram {
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
