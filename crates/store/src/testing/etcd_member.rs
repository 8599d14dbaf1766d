//! One etcd process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};

use crate::HeldPort;

const PROGRAM: &str = "/usr/bin/etcd";

pub(super) struct EtcdMember {
    pub(super) name: String,
    pub(super) directory: PathBuf,
    pub(super) client_url: String,
    pub(super) peer_url: String,
    child: Option<Child>,
}

impl EtcdMember {
    pub(super) fn new(name: String, directory: &Path, scheme: &str) -> Self {
        let directory = directory.join(&name);
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        Self {
            name,
            directory,
            client_url: format!("{scheme}://127.0.0.1:{}", free_port()),
            peer_url: format!("{scheme}://127.0.0.1:{}", free_port()),
            child: None,
        }
    }

    pub(super) fn start(&mut self, cluster: &str, token: &str, tls: &[String]) {
        assert!(
            Path::new(PROGRAM).exists(),
            "{PROGRAM} is missing: run scripts/setup, which installs etcd-server"
        );
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("the log can be opened");
        let child = Command::new(PROGRAM)
            .env_clear()
            .args(["--name", &self.name, "--data-dir"])
            .arg(self.directory.join("data"))
            .args(["--listen-client-urls", &self.client_url])
            .args(["--advertise-client-urls", &self.client_url])
            .args(["--listen-peer-urls", &self.peer_url])
            .args(["--initial-advertise-peer-urls", &self.peer_url])
            .args(["--initial-cluster", cluster])
            .args(["--initial-cluster-token", token])
            .args(["--initial-cluster-state", "new"])
            .args(["--logger=zap", "--log-outputs=stderr"])
            .args(tls)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {PROGRAM}: {error}"));
        self.child = Some(child);
    }

    /// Returns the end of its output, if it stopped on its own.
    pub(super) fn stopped(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(format!(
            "{} stopped: {status}\n{}",
            self.name,
            self.log_end()
        ))
    }

    pub(super) fn log_end(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Kills the process with `kill -9`, and waits until it is gone.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the member is running");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process has an id"), signal).expect("our own child");
    }
}

impl Drop for EtcdMember {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a port for a server of this test. Nobody else gets it before the test ends, so the
/// server can come back to it.
pub fn free_port() -> u16 {
    static HELD: Mutex<Vec<HeldPort>> = Mutex::new(Vec::new());
    let port = HeldPort::any().expect("a port is free");
    let number = port.number();
    HELD.lock().expect("nobody panics with it").push(port);
    number
}
