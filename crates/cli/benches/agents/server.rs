//! The real server, in its own process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use bunraku_wire::api::ServerStatus;
use bunraku_wire::tls::ClientTls;
use bunraku_wire::{Client, ClientOptions, Credentials, ReloadableClientTls, ServerAddress};
use tempfile::TempDir;

pub(crate) struct BenchServer {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) operator: Client,
    pub(crate) authority_pem: String,
    directory: TempDir,
}

impl BenchServer {
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let directory = TempDir::new().expect("a directory");
        let mut child = Command::new(env!("CARGO_BIN_EXE_bunraku"))
            .args([
                "server",
                "--listen",
                "127.0.0.1:0",
                "--name",
                "bench.test",
                "--log",
                "error",
            ])
            .arg("--end-with-parent")
            .arg(std::process::id().to_string())
            .arg("--data-dir")
            .arg(directory.path())
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("its first line");
        let ready: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let address: SocketAddr = ready["listening"]
            .as_str()
            .expect("an address")
            .parse()
            .expect("an address");
        let credentials = Credentials::new(directory.path().join("operator"));
        let authority_pem = credentials
            .authority_pem()
            .expect("readable")
            .expect("there");
        let tls = ClientTls {
            authority_pem: authority_pem.clone(),
            revocation_lists_pem: String::new(),
            identity: credentials.identity().expect("readable"),
        };
        let server = ServerAddress::new("127.0.0.1", address.port()).expect("an address");
        let tls = ReloadableClientTls::new(&tls).expect("TLS");
        let operator = Client::new(ClientOptions::new(vec![server], tls));
        Self {
            child,
            address,
            operator,
            authority_pem,
            directory,
        }
    }

    #[allow(dead_code, reason = "not every bench starts processes")]
    pub(crate) fn credentials(&self) -> std::path::PathBuf {
        self.directory.path().join("operator")
    }

    /// Returns the size of all files in the server's directory.
    #[allow(dead_code, reason = "not every bench looks at the disk")]
    pub(crate) fn stored_bytes(&self) -> u64 {
        let mut waiting = vec![self.directory.path().to_owned()];
        let mut sum = 0;
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).expect("readable") {
                let entry = entry.expect("an entry");
                let metadata = entry.metadata().expect("readable");
                if metadata.is_dir() {
                    waiting.push(entry.path())
                } else {
                    sum += metadata.len()
                }
            }
        }
        sum
    }

    pub(crate) fn resident_kib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .expect("VmRSS");
        line.split_whitespace()
            .nth(1)
            .expect("a number")
            .parse()
            .expect("a number")
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .expect("fields")
            .split_whitespace()
            .collect();
        let ticks: u64 =
            fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
        ticks as f64 / 100.0
    }

    #[allow(dead_code, reason = "not every bench counts agents")]
    pub(crate) async fn connected(&self) -> usize {
        let status: ServerStatus = self.operator.get("/v1/server").await.expect("its status");
        status.connected_agents
    }

    pub(crate) async fn end(mut self) {
        self.child.kill().expect("it ends");
        self.child.wait().expect("it ended");
    }
}
