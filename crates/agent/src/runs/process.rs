//! Programs that runs are left to: what they print, their end, and ending them.
//!
//! A program has a process group of its own. What it starts may leave that
//! group (Puppet gives every command that it runs a session of its own), so
//! ending it means all its descendants, found through `/proc` and held by file
//! descriptors: a process id that was given away again is never signalled.

use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::reports::Recorder;

/// From asking a program to end to ending it.
const GRACE: Duration = Duration::from_secs(10);
/// How long output may come after the program has ended: something that it
/// started may hold the pipe for ever.
const DRAIN: Duration = Duration::from_secs(1);
/// A longer line is told in pieces.
const LONGEST_LINE: usize = 8 << 10;
/// More descendants are not looked for.
const MOST_PROCESSES: usize = 10_000;

/// Tells what the program prints until it ends, and ends it when the run is stopped.
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
    let group = (child.id()).and_then(|id| Pid::from_raw(id.cast_signed()));
    tokio::select! {
        status = child.wait() => return status,
        () = stop.cancelled() => {}
    }
    let Some(group) = group else {
        return child.wait().await;
    };
    let mut family = Descendants::default();
    family.look(group);
    signal(group, &family, Signal::TERM);
    let status = match tokio::time::timeout(GRACE, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            family.look(group);
            signal(group, &family, Signal::KILL);
            child.wait().await
        }
    };
    // Also those that it left behind.
    signal(group, &family, Signal::KILL);
    status
}

/// Nobody may be left to hear it.
fn signal(group: Pid, family: &Descendants, signal: Signal) {
    let _ = kill_process_group(group, signal);
    for process in &family.processes {
        let _ = pidfd_send_signal(process, signal);
    }
}

/// Processes that a program started, and those that these did.
#[derive(Default)]
struct Descendants {
    processes: Vec<std::os::fd::OwnedFd>,
}

impl Descendants {
    /// Adds those that there are now.
    fn look(&mut self, root: Pid) {
        let parents = parents();
        let mut family = vec![root.as_raw_nonzero().get()];
        let mut next = 0;
        while let Some(parent) = family.get(next).copied() {
            let children = parents.iter().filter(|(_, of)| *of == parent);
            family.extend(children.map(|(id, _)| *id));
            next += 1;
            if family.len() > MOST_PROCESSES {
                break;
            }
        }
        for id in family.into_iter().skip(1) {
            let Some(pid) = Pid::from_raw(id) else {
                continue;
            };
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            // It is held now; was it still the same one?
            if parent_of(id).is_some_and(|parent| parents.contains(&(id, parent))) {
                self.processes.push(process);
            }
        }
    }
}

/// Every process with its parent.
fn parents() -> Vec<(i32, i32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ids = entries.flatten().filter_map(|entry| {
        let id: i32 = entry.file_name().to_str()?.parse().ok()?;
        Some((id, parent_of(id)?))
    });
    ids.collect()
}

fn parent_of(id: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program is in parentheses and may contain any.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Every line of output as it comes.
async fn tell(pipe: Option<impl AsyncRead + Unpin>, level: &str, recorder: &Recorder) {
    let Some(pipe) = pipe else { return };
    let mut reader = BufReader::with_capacity(LONGEST_LINE, pipe);
    let mut line = Vec::new();
    loop {
        let (taken, ended) = match reader.fill_buf().await {
            Ok([]) | Err(_) => (0, true),
            Ok(bytes) => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let taken = end.map_or(bytes.len(), |end| end + 1);
                line.extend_from_slice(&bytes[..taken]);
                (taken, end.is_some())
            }
        };
        reader.consume(taken);
        if ended || line.len() >= LONGEST_LINE {
            if !line.is_empty() {
                let text = String::from_utf8_lossy(&line);
                recorder.log(level, None, text.trim_end_matches(['\n', '\r']));
                line.clear();
            }
            if taken == 0 {
                return;
            }
        }
    }
}
