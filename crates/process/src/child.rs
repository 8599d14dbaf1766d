//! A running child, for code on tokio.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::descendants::Descendants;
use crate::group::ProcessGroup;
use crate::program::Program;
use crate::work::WorkRecord;

/// A running child. Dropping it kills its whole group.
#[derive(Debug)]
pub struct Child {
    child: tokio::process::Child,
    group: Option<ProcessGroup>,
    background_may_stay: bool,
    record: Option<WorkRecord>,
    /// The child did not end on its own.
    was_ended: bool,
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
}

impl Program {
    /// Starts the program. Only [`Program::output`] writes the bytes given as [`Program::input`].
    pub fn start(mut self) -> io::Result<Child> {
        let record = self.begin_record();
        let (own_group, background_may_stay) = (self.own_group, self.background_may_stay);
        let mut command = Command::from(self.command());
        let spawned = command.kill_on_drop(true).spawn();
        let (mut child, record) = match (spawned, record) {
            (Ok(child), record) => (child, record),
            (Err(error), record) => {
                if let Some(record) = record {
                    record.finished();
                }
                return Err(error);
            }
        };
        let id = child.id();
        if let (Some(id), Some(record)) = (id, &record) {
            record.started(id);
        }
        Ok(Child {
            group: id.and_then(|id| {
                if own_group {
                    ProcessGroup::of_leader(id)
                } else {
                    ProcessGroup::only(id)
                }
            }),
            background_may_stay,
            record,
            was_ended: false,
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child,
        })
    }
}

impl Child {
    /// Returns the process id, until the child has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a signal to the group, unless the child has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = &self.group {
            group.signal(signal);
        }
    }

    /// Kills the group without waiting for its end.
    pub fn kill(&self) {
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    /// Waits for the child itself. Then kills the processes that the child left in its group,
    /// unless [`Program::background_may_stay`] was set.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.settle();
        Ok(status)
    }

    pub fn has_ended(&mut self) -> bool {
        let ended = !matches!(self.child.try_wait(), Ok(None));
        if ended {
            self.settle();
        }
        ended
    }

    /// Asks the group to end, and kills it when `grace` has passed.
    pub async fn end(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.was_ended = true;
        self.signal(Signal::TERM);
        if let Ok(status) = timeout(grace, self.wait()).await {
            return status;
        }
        self.kill();
        self.wait().await
    }

    /// Ends the child with all its descendants, including those that left the group (Puppet starts
    /// every command in its own session).
    pub async fn end_with_descendants(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        let Some(group) = self.group else {
            return self.wait().await;
        };
        let mut family = Descendants::default();
        family.find(group.leader());
        group.signal(Signal::TERM);
        family.signal(Signal::TERM);
        let status = match timeout(grace, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                family.find(group.leader());
                group.kill();
                family.signal(Signal::KILL);
                self.child.wait().await
            }
        };
        // Kill the processes that it left behind, too.
        group.signal(Signal::KILL);
        family.signal(Signal::KILL);
        self.group = None;
        if let Some(record) = self.record.take() {
            record.kill_rest();
        }
        status
    }

    /// Kills the rest of the group, unless background processes may stay. The leader was reaped a
    /// moment ago, so its process id is used at most once more, and immediately.
    fn settle(&mut self) {
        if let Some(group) = self.group.take()
            && !self.background_may_stay
        {
            group.signal(Signal::KILL);
        }
        match self.record.take() {
            Some(record) if self.was_ended || !self.background_may_stay => record.kill_rest(),
            Some(record) => record.finished(),
            None => {}
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        if let Some(record) = self.record.take() {
            record.kill_rest();
        }
    }
}
