//! A single bounded answer of a program: started, fed, read and waited for.

use std::io;
use std::ops::ControlFlow;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::Stream;
use crate::blocking::{FollowEnd, WaitLimits};
use crate::capture::{CapturePart, CapturedStream};
use crate::program::Program;

/// The time for which output is read after the program and its group have ended: a process in its
/// own session may hold the pipe open forever.
const DRAIN: Duration = Duration::from_secs(5);

/// Bounds for one answer.
#[derive(Clone, Copy, Debug)]
pub struct OutputLimits {
    pub time: Duration,
    pub stdout: CapturePart,
    pub stderr: CapturePart,
}

/// The output of a program, and its exit status.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// The reason why there is no output. The program has been killed.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("cannot be started")]
    Start(#[source] io::Error),
    #[error("did not exit within {} s", .0.as_secs_f64())]
    TimeOut(Duration),
    #[error("printed too much")]
    TooMuch,
    #[error("produced output that cannot be read")]
    Follow(#[source] io::Error),
}

impl OutputLimits {
    /// Returns limits for a program that prints little: this time, 16 MiB of output, and 64 KiB of
    /// standard error.
    pub fn with_timeout(time: Duration) -> Self {
        Self {
            time,
            stdout: CapturePart::AtMost(16 << 20),
            stderr: CapturePart::First(64 << 10),
        }
    }
}

impl OutputError {
    /// Returns the operating system's error, if there is one.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Start(error) | Self::Follow(error) => error,
            other => io::Error::other(other.to_string()),
        }
    }
}

impl Output {
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl Program {
    /// Runs the program to its end within limits. Dropping the future kills it.
    pub async fn output(mut self, limits: OutputLimits) -> Result<Output, OutputError> {
        let input = self.input.take();
        let mut child = self.start().map_err(OutputError::Start)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A program that does not read its input may still answer.
                let _ = stdin.write_all(&input).await;
            }
        };
        let read = async {
            let streams = async {
                tokio::try_join!(read(stdout, limits.stdout), read(stderr, limits.stderr))
            };
            let ((), streams) = tokio::join!(feed, streams);
            streams
        };
        let work = async {
            tokio::pin!(read);
            let status = tokio::select! {
                streams = &mut read => {
                    let (stdout, stderr) = streams?;
                    let status = child.wait().await.map_err(OutputError::Follow)?;
                    return Ok((status, stdout, stderr));
                }
                status = child.wait() => status.map_err(OutputError::Follow)?,
            };
            // The group has ended, and with it all processes that usually hold the pipes.
            let streams = timeout(DRAIN, read).await;
            let (stdout, stderr) = streams.map_err(|_| OutputError::TimeOut(limits.time))??;
            Ok((status, stdout, stderr))
        };
        let done = timeout(limits.time, work).await;
        let (status, stdout, stderr) = done.map_err(|_| OutputError::TimeOut(limits.time))??;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }
}

impl Program {
    /// Runs the program to its end within limits, for code that may block.
    pub fn output_blocking(self, limits: OutputLimits) -> Result<Output, OutputError> {
        let mut child = self.start_blocking().map_err(OutputError::Start)?;
        let mut stdout = CapturedStream::new(limits.stdout);
        let mut stderr = CapturedStream::new(limits.stderr);
        let until = WaitLimits {
            deadline: Instant::now().checked_add(limits.time),
            cancelled: None,
        };
        let followed = child.follow(until, |stream, bytes| {
            let fits = match stream {
                Stream::Stdout => stdout.push(bytes),
                Stream::Stderr => stderr.push(bytes),
            };
            if fits {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        let status = child.finish();
        match followed.map_err(OutputError::Follow)? {
            FollowEnd::Ended => {}
            FollowEnd::Stopped => return Err(OutputError::TooMuch),
            FollowEnd::Late | FollowEnd::Cancelled => {
                return Err(OutputError::TimeOut(limits.time));
            }
        }
        let status = status
            .ok_or_else(|| OutputError::Follow(io::Error::other("cannot wait for it to exit")))?;
        Ok(Output {
            status,
            stdout: stdout.into_bytes(),
            stderr: stderr.into_bytes(),
        })
    }
}

async fn read(
    pipe: Option<impl AsyncRead + Unpin>,
    keep: CapturePart,
) -> Result<Vec<u8>, OutputError> {
    let mut captured = CapturedStream::new(keep);
    let Some(mut pipe) = pipe else {
        return Ok(Vec::new());
    };
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = pipe.read(&mut buffer).await.map_err(OutputError::Follow)?;
        if count == 0 {
            return Ok(captured.into_bytes());
        }
        if !captured.push(&buffer[..count]) {
            return Err(OutputError::TooMuch);
        }
    }
}
