//! Up to four servers of a cluster as processes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use bunraku_store::testing::free_port;
use serde_json::Value;

use crate::support::{ServerProcess, Site, all_output, bunraku};

/// The servers' directories and ports.
pub(crate) struct Cluster {
    pub(crate) site: Site,
    pub(crate) ports: [[u16; 4]; 4],
}

pub(crate) fn name(number: usize) -> String {
    format!("s{number}")
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let cluster = Self {
            ports: [(); 4].map(|()| [(); 4].map(|()| free_port())),
            site: Site::new(),
        };
        cluster.configure("");
        cluster
    }

    /// Writes the configuration, with additional lines below `[server.cluster]`.
    pub(crate) fn configure(&self, further: &str) {
        let settings = format!(
            "[server.cluster]\nlisten = \"127.0.0.1\"\nprobe_period = \"500ms\"\n\
             probe_timeout = \"200ms\"\nsuspicion = \"2s\"\npause_between_changes = \"1s\"\n\
             {further}"
        );
        std::fs::write(self.settings(), settings).expect("settings");
    }

    fn settings(&self) -> PathBuf {
        self.site.path("cluster.toml")
    }

    pub(crate) fn directory(&self, number: usize) -> PathBuf {
        self.site.path(&name(number))
    }

    /// Runs `cluster init` or `join` with this server's paths and addresses.
    pub(crate) fn set_up(&self, number: usize, what: &[&str]) -> Output {
        let mut command = bunraku();
        command.arg("cluster").args(what);
        command.arg("--config").arg(self.settings());
        command.arg("--data-dir").arg(self.directory(number));
        command.args(["--name", &name(number), "--address", "127.0.0.1"]);
        let flags = [
            "port",
            "member-port",
            "datastore-port",
            "datastore-peer-port",
        ];
        for (flag, port) in flags.iter().zip(self.ports[number - 1]) {
            command.arg(format!("--{flag}={port}"));
        }
        command.output().expect("it runs")
    }

    /// Runs `etcdctl` on the datastore of a server, with its credentials.
    pub(crate) fn etcdctl(&self, number: usize, arguments: &[&str]) -> Output {
        let tls = self.directory(number).join("cluster/tls");
        let file = |name: &str| tls.join(name).display().to_string();
        let endpoint = format!("https://127.0.0.1:{}", self.ports[number - 1][2]);
        Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint, "--cacert", &file("ca.pem")])
            .args(["--cert", &file("cert.pem"), "--key", &file("key.pem")])
            .args(arguments)
            .output()
            .expect("etcdctl runs; scripts/setup installs it")
    }

    /// Lets a server join with a token, and starts it.
    pub(crate) fn join(&self, first: &ServerProcess, number: usize) -> ServerProcess {
        let invited = first.operator(&["cluster", "invite"]);
        assert!(invited.status.success(), "{}", all_output(&invited));
        let token = self.site.path("token");
        std::fs::write(&token, &invited.stdout).expect("written");
        let (address, token) = (first.address.to_string(), token.display().to_string());
        let flags = [
            "join",
            &address,
            "--ca-fingerprint",
            &first.fingerprint,
            "--token-file",
            &token,
        ];
        let joined = self.set_up(number, &flags);
        assert!(joined.status.success(), "{}", all_output(&joined));
        self.server(number)
    }

    pub(crate) fn server(&self, number: usize) -> ServerProcess {
        let settings = self.settings().display().to_string();
        let port = self.ports[number - 1][0];
        self.site
            .server(&name(number), port, &["--config", &settings])
    }

    pub(crate) fn recover(&self, flags: &[&str]) -> Output {
        let mut command = bunraku();
        command.args(["cluster", "recover"]).args(flags);
        command.arg("--config").arg(self.settings());
        command.arg("--data-dir").arg(self.directory(1));
        command.output().expect("it runs")
    }

    /// Runs the recovery on a terminal and types this text at the prompt.
    pub(crate) fn recover_on_terminal(&self, flags: &[&str], typed: &str) -> Output {
        let quoted = |text: &str| format!("'{text}'");
        let mut line = vec![quoted(env!("CARGO_BIN_EXE_bunraku"))];
        line.extend(["cluster".to_owned(), "recover".to_owned()]);
        line.extend(flags.iter().map(|flag| quoted(flag)));
        line.push("--config".to_owned());
        line.push(quoted(&self.settings().display().to_string()));
        line.push("--data-dir".to_owned());
        line.push(quoted(&self.directory(1).display().to_string()));
        let mut script = Command::new("script")
            .args([
                "--quiet",
                "--return",
                "--command",
                &line.join(" "),
                "/dev/null",
            ])
            .env_remove("BUNRAKU_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("`script` runs; scripts/setup installs bsdutils");
        let mut terminal = script.stdin.take().expect("piped");
        writeln!(terminal, "{typed}").expect("it is typed");
        // The terminal stays open until the command ends: an end of input is not an answer.
        let output = script.wait_with_output().expect("it ends");
        drop(terminal);
        output
    }
}

pub(crate) fn healthy(status: &Value) -> usize {
    let datastores = status["datastores"].as_array().expect("a list");
    let fine = datastores
        .iter()
        .filter(|it| it["healthy"] == true && it["learner"] == false);
    fine.count()
}

/// Runs `cluster status`, which exits with 3 while the cluster is degraded.
pub(crate) fn status(server: &ServerProcess) -> Option<Value> {
    let output = server.operator(&["cluster", "status", "--json"]);
    serde_json::from_slice(&output.stdout).ok()
}
