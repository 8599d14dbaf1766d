//! A child and everything that it started, ended together.

use rustix::process::{Pid, Signal, kill_process_group};

/// Kills the group when it is dropped. The child must lead a group of its own,
/// and what it left running when it ended goes too.
pub struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    pub fn of(child: &tokio::process::Child) -> Self {
        let raw = child.id().and_then(|id| i32::try_from(id).ok());
        Self(raw.and_then(Pid::from_raw))
    }

    pub fn kill(&self) {
        if let Some(leader) = self.0 {
            // Gone already is as good.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
