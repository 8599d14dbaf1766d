//! Programs that execute runs: their output as log lines, and their end.

use std::ffi::OsString;
use std::process::ExitStatus;
use std::time::Duration;

use bunraku_process::{Child, LineSplitter, Program};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

use super::labels::variables_of;
use super::method::RunOrder;
use crate::reports::Recorder;

/// The time between asking a program to end and killing it.
const GRACE: Duration = Duration::from_secs(10);
/// The time for which output is read after the program has ended: a process that it started may
/// hold the pipe open forever.
const DRAIN: Duration = Duration::from_secs(1);
/// Longer lines are logged in pieces.
const LONGEST_LINE: usize = 8 << 10;

/// Creates a program of a run. Triggers that it fires continue the chain of the run's causes.
/// Background processes that it starts stay when it ends.
pub(super) fn program(program: impl Into<OsString>, order: &RunOrder) -> Program {
    let causes = serde_json::to_string(&order.causes).expect("causes are plain data");
    let labels = variables_of(&order.causes).into_iter();
    labels
        .fold(Program::new(program), |program, (name, value)| {
            program.env(name, value)
        })
        .env("BUNRAKU_RUN", order.id.to_string())
        .env("BUNRAKU_CAUSES", causes)
        .env("BUNRAKU_MORE_CAUSES", order.more_causes.to_string())
        .background_may_stay()
        .recorded(&order.work)
}

/// Logs the program's output until it ends. Ends it with all its descendants when the run is
/// stopped.
pub(super) async fn supervise(
    child: &mut Child,
    recorder: &Recorder,
    stop: &CancellationToken,
) -> std::io::Result<ExitStatus> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let text = async {
        tokio::join!(
            log_output(stdout, "info", recorder),
            log_output(stderr, "warning", recorder)
        );
    };
    tokio::pin!(text);
    // This future is polled to its end: dropping it would lose the progress of ending the program.
    let ended = wait(child, stop);
    tokio::pin!(ended);
    let mut silent = false;
    let status = loop {
        tokio::select! {
            status = &mut ended => break status,
            () = &mut text, if !silent => silent = true,
        }
    };
    if !silent {
        let _ = tokio::time::timeout(DRAIN, text).await;
    }
    status
}

/// Waits for the program to end, and ends it when the run is stopped.
async fn wait(child: &mut Child, stop: &CancellationToken) -> std::io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = stop.cancelled() => {}
    }
    child.end_with_descendants(GRACE).await
}

/// Logs every line of output as it arrives.
async fn log_output(pipe: Option<impl AsyncRead + Unpin>, level: &str, recorder: &Recorder) {
    let Some(mut pipe) = pipe else { return };
    let mut lines = LineSplitter::new(LONGEST_LINE);
    let mut buffer = vec![0; LONGEST_LINE];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        lines.push(&buffer[..count], |line| recorder.log(level, None, line));
    }
    lines.finish(|line| recorder.log(level, None, line));
}
