//! A process group, by its leader.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The group that a child leads, or the child alone where it shares ours.
///
/// Signals are sent only while the leader is not reaped, so that its number
/// cannot mean another group; the handles of this crate see to that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessGroup {
    leader: Pid,
    whole: bool,
}

impl ProcessGroup {
    /// The group of a process that leads one, if the number can be one.
    pub fn of_leader(id: u32) -> Option<Self> {
        Some(Self {
            leader: pid(id)?,
            whole: true,
        })
    }

    /// The process alone.
    pub(crate) fn only(id: u32) -> Option<Self> {
        Some(Self {
            leader: pid(id)?,
            whole: false,
        })
    }

    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    /// Signals all members. A group that is gone is not an error.
    pub fn signal(&self, signal: Signal) {
        let _ = if self.whole {
            kill_process_group(self.leader, signal)
        } else {
            kill_process(self.leader, signal)
        };
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        // The leader may have moved to another group.
        let _ = kill_process(self.leader, Signal::KILL);
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}
