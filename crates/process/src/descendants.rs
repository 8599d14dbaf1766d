//! The processes that a process started, directly or through others.
//!
//! They are found through `/proc` and held by process descriptors, so that a reused process id is
//! never signalled.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The maximum number of processes to look for.
const MOST_PROCESSES: usize = 10_000;

/// The interval at which descendants that have to end are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Ends everything that this process started, directly or through others: asks, and kills after
/// `grace`. Blocks. If this process is a subreaper, that includes processes that detached.
pub fn end_own_descendants(grace: Duration) {
    let own = rustix::process::getpid();
    let begun = Instant::now();
    let mut asked: Vec<i32> = Vec::new();
    loop {
        let mut family = Descendants::default();
        let ids = family.find(own);
        if family.processes.is_empty() {
            return;
        }
        for (id, process) in ids.iter().zip(&family.processes) {
            if begun.elapsed() >= grace {
                let _ = pidfd_send_signal(process, Signal::KILL);
            } else if !asked.contains(id) {
                asked.push(*id);
                let _ = pidfd_send_signal(process, Signal::TERM);
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// The descendants of one process found so far.
#[derive(Default)]
pub(crate) struct Descendants {
    processes: Vec<OwnedFd>,
}

impl Descendants {
    /// Adds the descendants that exist now, and returns their ids.
    pub(crate) fn find(&mut self, root: Pid) -> Vec<i32> {
        let mut found = Vec::new();
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
            // The process is held now. Check that it is still the same one.
            if parent_of(id).is_some_and(|parent| parents.contains(&(id, parent))) {
                self.processes.push(process);
                found.push(id);
            }
        }
        found
    }

    pub(crate) fn signal(&self, signal: Signal) {
        for process in &self.processes {
            let _ = pidfd_send_signal(process, signal);
        }
    }
}

/// Returns every process with its parent.
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
    // The program's name is in parentheses and may itself contain parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    // One that has ended and only waits to be reaped is not there any more.
    let state = fields.next()?;
    (!matches!(state, "Z" | "X" | "x")).then(|| fields.next()?.parse().ok())?
}
