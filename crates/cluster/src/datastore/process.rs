//! One etcd process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_process::{Child, Program as Executable};
use rustix::process::{Pid, Signal, kill_process};

use crate::directory::Directory;
use crate::order::{ClusterState, DatastoreOrder};

/// The time limit for a graceful exit.
const PATIENCE: Duration = Duration::from_secs(10);
/// A larger log is truncated when the next process starts.
const LARGEST_LOG: u64 = 64 << 20;

/// The reason why etcd does not run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot start {}", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write {}", path.display())]
    Log {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// The settings for starting etcd on this server.
#[derive(Clone, Debug)]
pub struct Program {
    /// `/usr/bin/etcd`.
    pub etcd: PathBuf,
    /// `/usr/bin/etcdctl`: creates a data directory from a snapshot.
    pub etcdctl: PathBuf,
    pub name: NodeName,
    pub client_url: String,
    pub peer_url: String,
    /// The address to listen on. The port comes from the advertised address.
    pub listen: std::net::IpAddr,
    pub heartbeat: Duration,
    pub election: Duration,
    /// Additional flags, appended last.
    pub flags: Vec<String>,
}

impl Program {
    fn arguments(&self, directory: &Directory, order: &DatastoreOrder, data: &Path) -> Vec<String> {
        let credentials = directory.credentials();
        let certificate = credentials.certificate_path().display().to_string();
        let key = credentials.key_path().display().to_string();
        let authority = credentials.authority_path().display().to_string();
        let state = match order.state {
            ClusterState::New => "new",
            ClusterState::Existing => "existing",
        };
        let flag = |name: &str, value: &str| format!("--{name}={value}");
        let mut arguments = vec![
            flag("name", self.name.as_str()),
            flag("data-dir", &data.display().to_string()),
            flag("listen-client-urls", &self.listening(&self.client_url)),
            flag("advertise-client-urls", &self.client_url),
            flag("listen-peer-urls", &self.listening(&self.peer_url)),
            flag("initial-advertise-peer-urls", &self.peer_url),
            flag("initial-cluster", &order.initial_cluster_flag()),
            flag("initial-cluster-token", &order.token),
            flag("initial-cluster-state", state),
            flag("heartbeat-interval", &millis(self.heartbeat)),
            flag("election-timeout", &millis(self.election)),
            flag("quota-backend-bytes", "8589934592"),
            flag("logger", "zap"),
            flag("log-outputs", "stderr"),
            "--client-cert-auth".to_owned(),
            "--peer-client-cert-auth".to_owned(),
        ];
        for side in ["", "peer-"] {
            arguments.push(flag(&format!("{side}trusted-ca-file"), &authority));
            arguments.push(flag(&format!("{side}cert-file"), &certificate));
            arguments.push(flag(&format!("{side}key-file"), &key));
        }
        arguments.extend(self.flags.iter().cloned());
        arguments
    }

    /// Returns a URL with the same port on the address to listen on.
    fn listening(&self, url: &str) -> String {
        let port = url.rsplit(':').next().unwrap_or_default();
        format!(
            "https://{}",
            match self.listen {
                std::net::IpAddr::V4(address) => format!("{address}:{port}"),
                std::net::IpAddr::V6(address) => format!("[{address}]:{port}"),
            }
        )
    }

    pub(super) fn start(
        &self,
        directory: &Directory,
        order: &DatastoreOrder,
        data: &Path,
    ) -> Result<Process, ProcessError> {
        end_leftover(directory, data);
        let process = self.spawn(directory, order, data, &[])?;
        let pid = process.pid().map(|pid| pid.to_string()).unwrap_or_default();
        // Only used to find the process again if this process is killed at a bad moment.
        let _ = std::fs::write(directory.datastore_pid(), pid);
        Ok(process)
    }

    /// Starts only the process, with additional flags.
    pub(super) fn spawn(
        &self,
        directory: &Directory,
        order: &DatastoreOrder,
        data: &Path,
        further: &[&str],
    ) -> Result<Process, ProcessError> {
        let log = open_log(&directory.datastore_log())?;
        let child = Executable::new(&self.etcd)
            .env_clear()
            .args(self.arguments(directory, order, data))
            .args(further)
            .stdout(Stdio::null())
            .stderr(log)
            .ends_with_us()
            .start()
            .map_err(|source| ProcessError::Start {
                program: self.etcd.clone(),
                source,
            })?;
        Ok(Process { child })
    }
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

fn open_log(path: &Path) -> Result<File, ProcessError> {
    let large = std::fs::metadata(path).is_ok_and(|file| file.len() > LARGEST_LOG);
    File::options()
        .create(true)
        .write(true)
        .append(!large)
        .truncate(large)
        .open(path)
        .map_err(|source| ProcessError::Log {
            path: path.to_owned(),
            source,
        })
}

/// Ends a process of an earlier life that still holds this data. Only a process
/// with exactly this directory on its command line is ended.
fn end_leftover(directory: &Directory, data: &Path) {
    let Ok(text) = std::fs::read_to_string(directory.datastore_pid()) else {
        return;
    };
    let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) else {
        return;
    };
    let command_line = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
    let own = format!("--data-dir={}", data.display());
    let is_ours = std::fs::read(command_line).is_ok_and(|line| {
        line.split(|byte| *byte == 0)
            .any(|word| word == own.as_bytes())
    });
    if is_ours {
        tracing::warn!(?pid, "stopping a datastore that an earlier process started");
        let _ = kill_process(pid, Signal::KILL);
    }
}

pub(super) struct Process {
    child: Child,
}

impl Process {
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks the process to exit (it transfers its leadership first), and kills it after a timeout.
    pub(super) async fn end(&mut self) {
        let _ = self.child.end(PATIENCE).await;
    }
}
