//! Puppet's current state on this node, read from its own files.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Deserialize;

use super::places::PuppetPaths;

/// The largest lock file that is read. A lock file contains a number, or one line of JSON.
const LARGEST: u64 = 64 << 10;
/// The interval for checking the lock again: a process can release the lock and continue to run.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// The state of Puppet's agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PuppetState {
    Idle,
    Applying {
        pid: i32,
    },
    /// A user ran `puppet agent --disable`.
    Disabled {
        reason: Option<String>,
    },
    /// A killed run left its lock. Puppet removes it.
    StaleLock {
        pid: Option<i32>,
    },
}

impl PuppetState {
    /// Reads the state. `Disabled` takes precedence: nothing will run then, even if a run is active
    /// now.
    pub(super) fn read(places: &PuppetPaths) -> io::Result<Self> {
        if let Some(text) = contents(&places.disabled_lock)? {
            let reason = disabled_message(&text);
            return Ok(Self::Disabled { reason });
        }
        let Some(text) = contents(&places.run_lock)? else {
            return Ok(Self::Idle);
        };
        let pid: Option<i32> = text.trim().parse().ok().filter(|pid| *pid > 0);
        Ok(match pid {
            Some(pid) if is_puppet(pid) => Self::Applying { pid },
            pid => Self::StaleLock { pid },
        })
    }
}

/// Waits until the process has ended, or may have released the lock.
pub(super) async fn wait_for(pid: i32) {
    let watched = tokio::task::spawn_blocking(move || watch(pid)).await;
    if !matches!(watched, Ok(Some(()))) {
        // The process had already ended, or cannot be watched.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn watch(pid: i32) -> Option<()> {
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let mut watched = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut watched, Some(&LOOK_AGAIN)).ok()?;
    Some(())
}

fn disabled_message(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Disabled {
        disabled_message: Option<String>,
    }
    // The content does not matter: the existence of the file disables Puppet.
    let disabled = serde_json::from_str::<Disabled>(text).ok()?;
    disabled
        .disabled_message
        .filter(|reason| !reason.is_empty())
}

fn contents(path: &Path) -> io::Result<Option<String>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Detects a Puppet process by Puppet's own rule: Ruby with Puppet among its arguments, or a
/// program of that name.
fn is_puppet(pid: i32) -> bool {
    let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&read("stat")).into_owned();
    let is_zombie =
        (stat.rsplit_once(')')).is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'));
    let command = String::from_utf8_lossy(&read("comm")).trim().to_owned();
    let arguments = String::from_utf8_lossy(&read("cmdline")).into_owned();
    !is_zombie
        && (command.contains("ruby") && arguments.contains("puppet")
            || command.starts_with("puppet"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    struct Node(TempDir);

    impl Node {
        fn new() -> (Self, PuppetPaths) {
            let directory = TempDir::new().expect("a directory");
            let places = PuppetPaths {
                run_lock: directory.path().join("agent_catalog_run.lock"),
                disabled_lock: directory.path().join("agent_disabled.lock"),
                ..PuppetPaths::default()
            };
            (Self(directory), places)
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.path().join(name), text).expect("written");
        }
    }

    #[test]
    fn a_lock_counts_only_while_its_process_is_puppet() {
        let (node, places) = Node::new();
        assert_eq!(
            PuppetState::read(&places).expect("looked"),
            PuppetState::Idle
        );
        // This test process is alive, and is not Puppet.
        let own = std::process::id().cast_signed();
        for (text, pid) in [
            (own.to_string(), Some(own)),
            ("999999999\n".to_owned(), Some(999_999_999)),
            ("-1".to_owned(), None),
            ("what?".to_owned(), None),
            (String::new(), None),
        ] {
            node.write("agent_catalog_run.lock", &text);
            let state = PuppetState::read(&places).expect("looked");
            assert_eq!(state, PuppetState::StaleLock { pid }, "{text}");
        }
    }

    #[test]
    fn a_process_that_calls_itself_puppet_is_applying() {
        let (node, places) = Node::new();
        // A program's name is that of its file.
        let program = node.0.path().join("puppet-agent");
        std::fs::copy("/bin/sleep", &program).expect("copied");
        let mut child = std::process::Command::new(&program)
            .arg("600")
            .spawn()
            .expect("it starts");
        let pid = child.id().cast_signed();
        node.write("agent_catalog_run.lock", &pid.to_string());
        let before = PuppetState::read(&places).expect("looked");
        child.kill().expect("killed");
        // Nobody has reaped the process yet. A zombie applies nothing.
        let mut zombie = PuppetState::read(&places).expect("looked");
        for _ in 0..1_000 {
            if zombie != before {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            zombie = PuppetState::read(&places).expect("looked");
        }
        child.wait().expect("gone");
        assert_eq!(before, PuppetState::Applying { pid });
        assert_eq!(zombie, PuppetState::StaleLock { pid: Some(pid) });
    }

    #[test]
    fn a_disabled_agent_is_reported_with_its_reason_in_every_state() {
        let (node, places) = Node::new();
        node.write("agent_catalog_run.lock", "1");
        for (text, reason) in [
            (r#"{"disabled_message":"disk swap"}"#, Some("disk swap")),
            ("{}", None),
            (r#"{"disabled_message":""}"#, None),
            ("", None),
            ("not JSON", None),
        ] {
            node.write("agent_disabled.lock", text);
            let reason = reason.map(str::to_owned);
            let state = PuppetState::read(&places).expect("looked");
            assert_eq!(state, PuppetState::Disabled { reason }, "{text}");
        }
    }
}
