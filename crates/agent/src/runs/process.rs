//! Programs that runs are left to: their output as log lines, and their end.

use std::ffi::OsString;
use std::process::ExitStatus;
use std::time::Duration;

use bunraku_process::{Child, LineSplitter, Program};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

use super::method::RunOrder;
use crate::reports::Recorder;

/// From asking a program to end to ending it.
const GRACE: Duration = Duration::from_secs(10);
/// How long output may come after the program has ended: something that it
/// started may hold the pipe for ever.
const DRAIN: Duration = Duration::from_secs(1);
/// A longer line is told in pieces.
const LONGEST_LINE: usize = 8 << 10;

/// A program of a run: what it fires carries the chain of the run's causes on,
/// and what it starts in the background stays when it ends.
pub(super) fn program(program: impl Into<OsString>, order: &RunOrder) -> Program {
    let causes = serde_json::to_string(&order.causes).expect("causes are plain data");
    Program::new(program)
        .env("BUNRAKU_RUN", order.id.to_string())
        .env("BUNRAKU_CAUSES", causes)
        .env("BUNRAKU_MORE_CAUSES", order.more_causes.to_string())
        .background_may_stay()
}

/// Tells what the program prints until it ends, and ends it with all its
/// descendants when the run is stopped.
pub(super) async fn attend(
    child: &mut Child,
    recorder: &Recorder,
    stop: &CancellationToken,
) -> std::io::Result<ExitStatus> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let told = async {
        tokio::join!(
            tell(stdout, "info", recorder),
            tell(stderr, "warning", recorder)
        );
    };
    tokio::pin!(told);
    // Polled to its end: how far ending it has come must not be forgotten.
    let ended = wait(child, stop);
    tokio::pin!(ended);
    let mut silent = false;
    let status = loop {
        tokio::select! {
            status = &mut ended => break status,
            () = &mut told, if !silent => silent = true,
        }
    };
    if !silent {
        let _ = tokio::time::timeout(DRAIN, told).await;
    }
    status
}

/// Waits for the end, and hastens it when the run is stopped.
async fn wait(child: &mut Child, stop: &CancellationToken) -> std::io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = stop.cancelled() => {}
    }
    child.end_with_descendants(GRACE).await
}

/// Logs every line of output as it comes.
async fn tell(pipe: Option<impl AsyncRead + Unpin>, level: &str, recorder: &Recorder) {
    let Some(mut pipe) = pipe else { return };
    let mut lines = LineSplitter::new(LONGEST_LINE);
    let mut buffer = vec![0; LONGEST_LINE];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        lines.push(&buffer[..count], |line| recorder.log(level, None, line));
    }
    lines.finish(|line| recorder.log(level, None, line));
}
