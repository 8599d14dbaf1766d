//! The stage: uniquely named network namespaces, which are always removed, whatever
//! happened inside.
//!
//! The outer process creates the namespaces and starts itself again inside the
//! hub's namespace. Mounts made inside are visible to no other process, and
//! disappear with the last process.

use std::path::Path;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::network::Names;
use crate::tool::{ToolError, run};

/// The prefix of all names, followed by the id of the process that created them.
const PREFIX: &str = "bunraku-faults-";

/// The reason why there is no stage.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error(
        "this machine does not let us make network namespaces: partitions would not be real. It takes root, and a kernel with NET_NS and VETH"
    )]
    NotPermitted(#[source] ToolError),
    #[error("what is inside cannot be started")]
    Inside(#[source] std::io::Error),
}

/// Signals that ask this process to exit.
pub struct ExitSignals {
    terminate: Signals,
    interrupt: Signals,
}

impl ExitSignals {
    /// Listens for signals from now on, including those that arrive while nothing waits.
    pub fn listen() -> Result<Self, StageError> {
        let listen = |kind| signal(kind).map_err(StageError::Inside);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Namespaces for a number of servers.
pub struct Stage {
    names: Names,
    servers: usize,
}

impl Stage {
    /// Creates the namespaces. Removes those that an earlier process left behind.
    pub async fn build(servers: usize) -> Result<Self, StageError> {
        remove_leftovers().await;
        let stage = Self {
            names: Names {
                prefix: format!("{PREFIX}{}", std::process::id()),
            },
            servers,
        };
        stage.remove().await;
        for name in stage.all() {
            run(&["ip", "netns", "add", &name])
                .await
                .map_err(StageError::NotPermitted)?;
        }
        Ok(stage)
    }

    fn all(&self) -> Vec<String> {
        let servers = (0..self.servers).map(|server| self.names.server(server));
        std::iter::once(self.names.hub()).chain(servers).collect()
    }

    /// The name prefix, which is passed to the inner process.
    pub fn prefix(&self) -> &str {
        &self.names.prefix
    }

    /// Runs a program in the hub, and waits until it exits. Returns `None` if this
    /// process is asked to exit.
    pub async fn inside(
        &self,
        program: &Path,
        arguments: &[String],
        asked: &mut ExitSignals,
    ) -> Result<Option<ExitStatus>, StageError> {
        let mut child = tokio::process::Command::new("ip")
            .args(["netns", "exec", &self.names.hub()])
            .arg(program)
            .args(arguments)
            .kill_on_drop(true)
            .spawn()
            .map_err(StageError::Inside)?;
        tokio::select! {
            ended = child.wait() => ended.map(Some).map_err(StageError::Inside),
            () = asked.end() => Ok(None),
        }
    }

    /// Ends all processes in the namespaces, and removes the namespaces.
    pub async fn remove(&self) {
        for name in self.all() {
            remove(&name).await;
        }
    }
}

async fn remove(name: &str) {
    for _ in 0..50 {
        let Ok(pids) = run(&["ip", "netns", "pids", name]).await else {
            return;
        };
        let pids: Vec<Pid> = pids
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw))
            .collect();
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            // It may already have exited.
            let _ = kill_process(pid, Signal::KILL);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let _ = run(&["ip", "netns", "delete", name]).await;
}

/// Removes the namespaces of processes that were killed before they could clean up.
async fn remove_leftovers() {
    let list = run(&["ip", "netns", "list"]).await.unwrap_or_default();
    for name in list.lines().filter_map(|line| line.split(' ').next()) {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let pid = rest.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(pid).exists() {
            remove(name).await;
        }
    }
}
