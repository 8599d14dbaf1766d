//! A process group, identified by its leader.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The group that a child leads, or only the child if it shares our group.
///
/// Signals are sent only while the leader is not reaped, so that its process id cannot refer to
/// another group. The handles of this crate ensure that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessGroup {
    leader: Pid,
    whole: bool,
}

impl ProcessGroup {
    /// Returns the group of a process that leads one, if the number is a valid process id.
    pub fn of_leader(id: u32) -> Option<Self> {
        Some(Self {
            leader: pid(id)?,
            whole: true,
        })
    }

    /// Returns a handle to only this process.
    pub(crate) fn only(id: u32) -> Option<Self> {
        Some(Self {
            leader: pid(id)?,
            whole: false,
        })
    }

    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    /// Sends a signal to all members. A group that no longer exists is not an error.
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
