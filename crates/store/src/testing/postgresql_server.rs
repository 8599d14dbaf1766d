//! A real PostgreSQL on loopback.
//!
//! PostgreSQL refuses to run as root, so tests that run as root start it as the user of Debian's
//! package. Its data is not synced: a test that kills it means the process, not the machine.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use super::{TestAuthority, free_port};
use crate::history::postgresql::{PostgresqlOptions, PostgresqlTls};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The user of Debian's package.
const USER: &str = "postgres";

/// A server, until it is dropped.
pub struct PostgresqlServer {
    directory: TempDir,
    port: u16,
    child: Option<Child>,
    authority: TestAuthority,
}

impl PostgresqlServer {
    /// Starts a new, empty server. It accepts connections with and without TLS.
    pub async fn start() -> Self {
        assert!(
            Path::new(PROGRAMS).exists(),
            "{PROGRAMS} is missing: run scripts/setup test, which installs postgresql"
        );
        let directory = tempfile::tempdir().expect("a directory");
        let mut server = Self {
            directory,
            port: free_port(),
            child: None,
            authority: TestAuthority::new(),
        };
        server.create();
        server.launch();
        server.wait_until_ready().await;
        server
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn create(&self) {
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.directory.path(), open).expect("our own directory");
        std::fs::create_dir(self.data()).expect("a directory");
        give_away(&self.data());
        let status = as_other_user(&format!("{PROGRAMS}/initdb"))
            .args([
                "--no-sync",
                "-A",
                "trust",
                "-U",
                USER,
                "-E",
                "UTF8",
                "--locale=C",
                "-D",
            ])
            .arg(self.data())
            .stdout(Stdio::null())
            .status()
            .expect("initdb starts");
        assert!(status.success(), "initdb: {status}");
        let identity = self.authority.identity("postgresql");
        for (name, text) in [
            ("server.crt", identity.cert_pem),
            ("server.key", identity.key_pem),
        ] {
            let path = self.data().join(name);
            std::fs::write(&path, text).expect("a file");
            let private = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, private).expect("our own file");
            give_away(&path);
        }
    }

    /// Starts the process again, on the same port.
    pub fn launch(&mut self) {
        let log = File::options().create(true).append(true).open(self.log());
        let child = as_other_user(&format!("{PROGRAMS}/postgres"))
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string()])
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=",
            ])
            .args([
                "-c",
                "fsync=off",
                "-c",
                "max_connections=50",
                "-c",
                "ssl=on",
            ])
            .args(["-c", "shared_buffers=16MB"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("the log can be opened"))
            .spawn()
            .expect("postgres starts");
        self.child = Some(child);
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Waits until it accepts connections.
    pub async fn wait_until_ready(&mut self) {
        let limit = Duration::from_secs(120);
        let ready = tokio::time::timeout(limit, async {
            while self.try_connect("postgres").await.is_none() {
                let child = self.child.as_mut().expect("it was started");
                if let Ok(Some(status)) = child.try_wait() {
                    let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                    panic!("postgres stopped: {status}\n{log}");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        ready.await.expect("postgres accepts connections");
    }

    async fn try_connect(&self, database: &str) -> Option<Client> {
        let mut config = tokio_postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(self.port)
            .user(USER)
            .dbname(database);
        let (client, connection) = config.connect(NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    /// Connects as the superuser.
    pub async fn connect(&self, database: &str) -> Client {
        self.try_connect(database).await.expect("it answers")
    }

    /// Creates a database with a user of the same name, and returns the settings to use it.
    pub async fn database(&self, name: &str) -> PostgresqlOptions {
        let client = self.connect("postgres").await;
        for text in [
            format!("CREATE ROLE {name} LOGIN"),
            format!("CREATE DATABASE {name} OWNER {name}"),
        ] {
            client.batch_execute(&text).await.expect("created");
        }
        PostgresqlOptions {
            database: name.to_owned(),
            user: name.to_owned(),
            ..PostgresqlOptions::new("127.0.0.1", self.port)
        }
    }

    /// The settings to verify its certificate.
    pub fn tls(&self) -> PostgresqlTls {
        PostgresqlTls {
            ca_pem: self.authority.ca_pem(),
            identity: None,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a signal to the server and to its children, which serve connections.
    pub fn signal_all(&self, signal: Signal) {
        let parent = self.child.as_ref().expect("it is running").id();
        for id in children_of(parent).into_iter().chain([parent]) {
            let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
            // A child may have ended meanwhile.
            let _ = kill_process(pid.expect("a process has an id"), signal);
        }
    }

    /// Kills everything with `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.child.is_some() {
            self.signal_all(Signal::KILL);
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.data().join("postmaster.pid"));
    }
}

impl Drop for PostgresqlServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn as_other_user(program: &str) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups", program]);
        command
    } else {
        Command::new(program)
    };
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/");
    command
}

/// Makes the other user the owner.
fn give_away(path: &Path) {
    if is_root() {
        let status = Command::new("chown")
            .arg(format!("{USER}:{USER}"))
            .arg(path)
            .status();
        assert!(status.is_ok_and(|status| status.success()), "chown");
    }
}
