//! Real processes, ended by their process id.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use bunraku_store::testing::free_port;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A database on one node, and web servers on three others that wait for it.
pub(crate) const LAMP: &str = "
applications:
  app1:
    components:
      db: {node: dev1, produces: [sql]}
      web: {nodes: [dev2, dev3, dev4], consumes: [sql]}
";

/// Returns the binary, with a clean environment. One job of the checks sets another binary, in
/// which everything is delayed.
pub(crate) fn bunraku() -> Command {
    let program = std::env::var_os("BUNRAKU_TEST_PROGRAM");
    let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_bunraku").into());
    let mut command = Command::new(program);
    for name in [
        "BUNRAKU_CONFIG",
        "BUNRAKU_SERVERS",
        "BUNRAKU_CREDENTIALS",
        "BUNRAKU_LOG",
        "BUNRAKU_TOKEN",
        "HOME",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// The `site.yaml` of an environment in which all nodes get the resources in `all.yaml`.
pub(crate) const ONE_GROUP: (&str, &str) = (
    "site.yaml",
    "groups: {all: {nodes: '*', resources: all.yaml}}\n",
);

/// Writes files to a git repository, and commits them with all others. Creates the repository
/// if necessary.
pub(crate) fn write_and_commit(code: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let file = code.join(name);
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        std::fs::write(file, text).expect("written");
    }
    if !code.join(".git").exists() {
        run(code, "git", &["init", "--quiet", "--initial-branch=main"]);
    }
    run(code, "git", &["add", "--all"]);
    let who = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
    let message = ["commit", "--quiet", "--allow-empty", "--message=next"];
    run(code, "git", &[&who[..], &message[..]].concat());
}

/// The flags of an agent whose runs execute this script, and that runs only on request.
pub(crate) fn script_flags(script: &str) -> [&str; 6] {
    [
        "--run-method",
        "command",
        "--run-command",
        script,
        "--run-interval",
        "0s",
    ]
}

/// Returns exit code, standard output and standard error as one text.
pub(crate) fn all_output(output: &Output) -> String {
    format!(
        "exit {}\n--- stdout\n{}--- stderr\n{}",
        output
            .status
            .code()
            .map_or_else(|| "by signal".to_owned(), |code| code.to_string()),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs `bunraku` with this data directory, and returns its exit code and output.
pub(crate) fn output_in(data_dir: &Path, arguments: &[&str]) -> String {
    let mut command = bunraku();
    command.args(arguments).arg("--data-dir").arg(data_dir);
    all_output(&command.output().expect("it runs"))
}

/// Checks the exit code of a command.
#[track_caller]
pub(crate) fn ended(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", all_output(output));
}

/// Checks that the output of a command contains a text.
#[track_caller]
pub(crate) fn shows(output: &Output, text: &str) {
    let all = all_output(output);
    assert!(all.contains(text), "`{text}` is missing in {all}");
}

/// Runs another program, which must succeed.
pub(crate) fn run(directory: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .current_dir(directory)
        .args(arguments)
        .output()
        .unwrap_or_else(|_| panic!("{program} runs; scripts/setup installs it"));
    assert!(
        output.status.success(),
        "{program}: {}",
        all_output(&output)
    );
}

pub(crate) use bunraku_testkit::blocking::{eventually, eventually_or};

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("it can be signalled");
}

/// A process that ends with the test.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    pub(crate) fn start(mut command: Command, log: &Path) -> Self {
        let file = std::fs::File::create(log).expect("a log");
        let child = command
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .expect("it starts");
        Self {
            child,
            log: log.to_owned(),
        }
    }

    /// Returns the standard output; works only once.
    pub(crate) fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("piped")
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process id");
        kill_process(pid, signal).expect("it can be signalled");
    }

    /// Kills the process with `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ended");
    }

    /// Asks the process to end, and returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        let mut status = None;
        eventually("a process ends", || {
            status = self.child.try_wait().expect("it can be waited for");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory for one fleet.
pub(crate) struct Site {
    directory: TempDir,
}

/// A server process.
pub(crate) struct ServerProcess {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: String,
    data_dir: PathBuf,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self {
            directory: TempDir::new().expect("a directory"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a server with this name; `port` 0 selects any port.
    pub(crate) fn server(&self, name: &str, port: u16, flags: &[&str]) -> ServerProcess {
        self.server_with(name, port, flags, &[])
    }

    /// Starts a server with additional environment variables.
    pub(crate) fn server_with(
        &self,
        name: &str,
        port: u16,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> ServerProcess {
        // A port that the server can reuse later, because no outgoing connection gets it.
        let port = match port {
            0 => free_port(),
            port => port,
        };
        let mut command = bunraku();
        command.envs(environment.iter().copied());
        command.args([
            "server",
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--name",
            &format!("{name}.test"),
        ]);
        command.arg("--data-dir").arg(self.path(name)).args(flags);
        self.started(command, name)
    }

    /// Starts a server whose data directory has this name.
    pub(crate) fn started(&self, command: Command, name: &str) -> ServerProcess {
        let mut running = Running::start(command, &self.path(&format!("{name}.log")));
        let mut line = String::new();
        BufReader::new(running.stdout())
            .read_line(&mut line)
            .expect("readable");
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ready: {}", running.log()));
        ServerProcess {
            address: ready["listening"]
                .as_str()
                .expect("an address")
                .parse()
                .expect("an address"),
            fingerprint: ready["ca_fingerprint"]
                .as_str()
                .expect("a fingerprint")
                .to_owned(),
            running,
            data_dir: self.path(name),
        }
    }

    /// Starts an agent with this name. With a token it is accepted immediately.
    pub(crate) fn agent(&self, node: &str, servers: &[&ServerProcess], token: bool) -> Running {
        self.agent_with(node, servers, token, &[])
    }

    /// Starts an agent whose runs execute this script, and that runs only on request. Waits
    /// until it is connected.
    pub(crate) fn script_agent(&self, node: &str, server: &ServerProcess, script: &str) -> Running {
        let agent = self.agent_with(node, &[server], true, &script_flags(script));
        server.wait_for(node, "idle");
        agent
    }

    /// Starts an agent with additional flags.
    pub(crate) fn agent_with(
        &self,
        node: &str,
        servers: &[&ServerProcess],
        token: bool,
        flags: &[&str],
    ) -> Running {
        let mut command = bunraku();
        let addresses: Vec<String> = servers
            .iter()
            .map(|server| server.address.to_string())
            .collect();
        command.args(["agent", "--name", node, "--server", &addresses.join(",")]);
        command.args(["--ca-fingerprint", &servers[0].fingerprint]);
        command.arg("--data-dir").arg(self.path(node));
        command
            .arg("--state-dir")
            .arg(self.path(&format!("{node}.engine")));
        command.args(flags);
        if token {
            let made = servers[0].operator(&["token", "create", "--node", node]);
            assert!(made.status.success(), "{}", all_output(&made));
            command.env(
                "BUNRAKU_TOKEN",
                String::from_utf8(made.stdout).expect("text").trim(),
            );
        }
        Running::start(command, &self.path(&format!("{node}.log")))
    }
}

impl ServerProcess {
    pub(crate) fn credentials(&self) -> PathBuf {
        self.data_dir.join("operator")
    }

    /// Runs a command as the operator.
    pub(crate) fn operator(&self, arguments: &[&str]) -> Output {
        let mut command = bunraku();
        command
            .args(arguments)
            .arg("--server")
            .arg(self.address.to_string());
        command.arg("--credentials").arg(self.credentials());
        command.output().expect("it runs")
    }

    /// Waits until the servers have the facts of a node.
    pub(crate) fn wait_for_facts(&self, node: &str) {
        eventually("facts are there", || {
            let shown = self.operator(&["facts", "show", node, "kernel"]);
            shown.stdout == b"Linux\n"
        });
    }

    /// Issues a certificate for another operator, and writes its credentials to a directory.
    pub(crate) fn issue_operator(&self, name: &str, out: &Path) -> Output {
        let out = out.to_str().expect("text");
        self.operator(&["cert", "issue", name, "--role", "operator", "--out", out])
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.operator(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", all_output(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Returns the status word of a node in the list.
    pub(crate) fn status_of(&self, node: &str) -> Option<String> {
        word_in(&self.json(&["node", "list"]), node)
    }

    pub(crate) fn wait_for(&self, node: &str, word: &str) {
        let is_so = || {
            // A server that has just started may not answer for a moment.
            let output = self.operator(&["node", "list", "--json"]);
            let nodes = serde_json::from_slice(&output.stdout).unwrap_or_default();
            output.status.success() && word_in(&nodes, node).as_deref() == Some(word)
        };
        eventually_or(&format!("{node} is {word}"), is_so, || {
            let shown = all_output(&self.operator(&["node", "show", node]));
            let agent = self.data_dir.with_file_name(format!("{node}.log"));
            let agent = std::fs::read_to_string(agent).unwrap_or_default();
            let server = self.running.log();
            format!("{shown}\n--- agent\n{agent}\n--- server\n{server}")
        });
    }
}

fn word_in(nodes: &Value, node: &str) -> Option<String> {
    let mut nodes = nodes.as_array()?.iter();
    let node = nodes.find(|entry| entry["name"] == node)?;
    Some(node["word"].as_str()?.to_owned())
}

/// Waits for the end of a demo and returns its output. If it failed, this shows the end of the
/// output and of every log, because the cause is seldom at the beginning.
pub(crate) fn demo_text(mut demo: Running, directory: &Path) -> String {
    let text = read_all(&mut demo);
    if demo.wait() != Some(0) {
        let mut logs: Vec<PathBuf> = logs_below(directory);
        logs.sort();
        let logs = logs.iter().map(|log| {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            format!("--- {}\n{}", log.display(), last_lines(&text, 20))
        });
        panic!(
            "the demo failed:\n{}\n{}\n{}",
            last_lines(&text, 40),
            demo.log(),
            logs.collect::<String>()
        );
    }
    text
}

fn logs_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let logs = entries.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => logs_below(&entry.path()),
        _ => vec![entry.path()],
    });
    logs.filter(|path| path.extension().is_some_and(|it| it == "log"))
        .collect()
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n") + "\n"
}

/// Reads everything that a child prints until it ends.
fn read_all(running: &mut Running) -> String {
    let mut text = String::new();
    running.stdout().read_to_string(&mut text).expect("text");
    text
}

pub(crate) fn start_demo(arguments: &[&str], directory: &Path, log: &Path) -> Running {
    let mut command = bunraku();
    // The demo asks its servers, and does not depend on what they log.
    command.env("BUNRAKU_LOG", "warn");
    command
        .arg("demo")
        .arg("--dir")
        .arg(directory)
        .args(arguments);
    Running::start(command, log)
}
