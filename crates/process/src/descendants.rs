//! The processes that a process started, directly or through others.
//!
//! They are found through `/proc` and held by process descriptors, so that a reused process id is
//! never signalled.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The maximum number of processes to look for.
const MOST_PROCESSES: usize = 10_000;

/// The descendants of one process found so far.
#[derive(Default)]
pub(crate) struct Descendants {
    processes: Vec<OwnedFd>,
}

impl Descendants {
    /// Adds the descendants that exist now.
    pub(crate) fn find(&mut self, root: Pid) {
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
            }
        }
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
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}
