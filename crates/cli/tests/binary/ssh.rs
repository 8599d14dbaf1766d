//! Other machines over a real `sshd` on loopback: `node add`, `apply --ssh`.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::support::{Site, all_output, bunraku, eventually};

/// An SSH server with its own home directory, ended by its process id.
pub(crate) struct SshServer {
    pub(crate) directory: PathBuf,
    pub(crate) port: u16,
    child: std::process::Child,
}

impl SshServer {
    pub(crate) fn start(directory: &Path) -> Self {
        let directory = directory.to_owned();
        std::fs::create_dir_all(directory.join("home")).unwrap();
        key(&directory.join("host_key"));
        key(&directory.join("user_key"));
        key(&directory.join("stranger"));
        std::fs::copy(directory.join("user_key.pub"), directory.join("authorized")).unwrap();
        certify_host(&directory);
        let port = bunraku_store::testing::free_port();
        let place = directory.display();
        let settings = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {place}/host_key\n\
             HostCertificate {place}/host_key-cert.pub\nTrustedUserCAKeys {place}/ca.pub\n\
             AuthorizedKeysFile {place}/authorized\nStrictModes no\nUsePAM no\n\
             PidFile none\nSetEnv HOME={place}/home\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\n"
        );
        std::fs::write(directory.join("sshd_config"), settings).unwrap();
        // The directory that Debian's service would create.
        std::fs::create_dir_all("/run/sshd").unwrap();
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(directory.join("sshd_config"))
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(directory.join("sshd.log")).unwrap())
            .spawn()
            .expect("sshd starts; scripts/setup installs it");
        let host_key = std::fs::read_to_string(directory.join("host_key.pub")).unwrap();
        std::fs::write(
            directory.join("known_hosts"),
            format!("[127.0.0.1]:{port} {host_key}"),
        )
        .unwrap();
        let server = Self {
            directory,
            port,
            child,
        };
        eventually("sshd listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }

    fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    fn flags(&self, user_key: &str) -> Vec<String> {
        vec![
            "--ssh-port".to_owned(),
            self.port.to_string(),
            "--ssh-identity".to_owned(),
            self.directory.join(user_key).display().to_string(),
            "--ssh-option".to_owned(),
            format!(
                "UserKnownHostsFile={}",
                self.directory.join("known_hosts").display()
            ),
            "--ssh-option".to_owned(),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
        ]
    }

    fn apply(&self, arguments: &[&str]) -> Output {
        let mut command = bunraku();
        command
            .args(["apply", "--ssh", "127.0.0.1"])
            .args(self.flags("user_key"));
        command.args(arguments).output().unwrap()
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key(path: &Path) {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .status()
        .expect("ssh-keygen runs; scripts/setup installs it");
    assert!(status.success());
}

/// Creates an SSH authority, for hosts and for users, and the host's certificate.
fn certify_host(directory: &Path) {
    key(&directory.join("ca"));
    let status = Command::new("ssh-keygen")
        .args(["-q", "-h", "-I", "host", "-n", "127.0.0.1", "-s"])
        .arg(directory.join("ca"))
        .arg(directory.join("host_key.pub"))
        .status()
        .expect("ssh-keygen runs; scripts/setup installs it");
    assert!(status.success());
    let authority = std::fs::read_to_string(directory.join("ca.pub")).unwrap();
    let line = format!("@cert-authority 127.0.0.1,[127.0.0.1]:* {authority}");
    std::fs::write(directory.join("known_authority"), line).unwrap();
}

fn left_over(home: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(home.join(".cache/bunraku"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn states_are_applied_over_ssh_and_nothing_but_the_program_stays() {
    let site = Site::new();
    let ssh = SshServer::start(&site.path("ssh"));
    let tree = site.path("it's a tree/salt");
    let made = site.path("made here");
    std::fs::create_dir_all(tree.join("web")).unwrap();
    std::fs::create_dir_all(site.path("it's a tree/pillar")).unwrap();
    std::fs::write(tree.join("top.sls"), "base:\n  '*':\n    - web\n").unwrap();
    std::fs::write(tree.join("web/page"), "hello {{ pillar.who }}\n").unwrap();
    std::fs::write(
        tree.join("web/init.sls"),
        format!(
            "{}:\n  file.managed:\n    - source: salt://web/page\n    - template: jinja\n",
            made.display()
        ),
    )
    .unwrap();
    std::fs::write(
        site.path("it's a tree/pillar/top.sls"),
        "base:\n  '*':\n    - who\n",
    )
    .unwrap();
    std::fs::write(site.path("it's a tree/pillar/who.sls"), "who: world\n").unwrap();
    let state_dir = site.path("state");
    let path = tree.display().to_string();
    let flags = ["--state-dir", state_dir.to_str().unwrap(), path.as_str()];

    let would = ssh.apply(&[&flags[..], &["--noop", "--detailed-exitcodes"]].concat());
    assert_eq!(would.status.code(), Some(2), "{}", all_output(&would));
    assert!(!made.exists(), "noop changed something");

    let done = ssh.apply(&flags);
    assert!(done.status.success(), "{}", all_output(&done));
    assert_eq!(std::fs::read_to_string(&made).unwrap(), "hello world\n");
    assert_eq!(left_over(&ssh.home()), ["bin"]);

    let one = tree.join("web/init.sls").display().to_string();
    let again = ssh.apply(&[&flags[..2], &[one.as_str(), "--json"]].concat());
    assert!(again.status.success(), "{}", all_output(&again));
    let last = String::from_utf8(again.stdout).unwrap();
    let last: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!(
        last["states"][0]["changes"],
        serde_json::json!({}),
        "{last}"
    );
}

#[test]
fn pillar_data_from_standard_input_is_on_no_command_line() {
    let site = Site::new();
    let ssh = SshServer::start(&site.path("ssh"));
    let (seen, made) = (site.path("seen"), site.path("made"));
    let file = site.path("app.sls");
    let states = format!(
        "look:\n  cmd.run:\n    - name: cat /proc/[0-9]*/cmdline >{} 2>/dev/null || true\n\
         {}:\n  file.managed:\n    - contents: {{{{ pillar.word }}}}\n    - mode: '0600'\n",
        seen.display(),
        made.display()
    );
    std::fs::write(&file, states).unwrap();
    let state_dir = site.path("state");
    let mut command = bunraku();
    command
        .args(["apply", "--ssh", "127.0.0.1"])
        .args(ssh.flags("user_key"))
        .args(["--pillar-json", "-", "--state-dir"])
        .args([&state_dir, &file])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let secret = format!("correct-horse-{}", child.id());
    let pillar = serde_json::json!({"word": secret}).to_string();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), pillar.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", all_output(&done));
    assert!(std::fs::read_to_string(&made).unwrap().contains(&secret));
    let seen = String::from_utf8_lossy(&std::fs::read(&seen).unwrap()).into_owned();
    assert!(seen.contains("app") && !seen.contains(&secret), "{seen}");
    assert!(
        !all_output(&done).contains(&secret),
        "{}",
        all_output(&done)
    );
    assert_eq!(left_over(&ssh.home()), ["bin"]);
}

#[test]
fn the_exit_code_of_the_other_machine_is_ours() {
    let site = Site::new();
    let ssh = SshServer::start(&site.path("ssh"));
    let state = site.path("fails.sls");
    std::fs::write(&state, "no:\n  test.fail_without_changes: []\n").unwrap();
    let state_dir = site.path("state");
    let output = ssh.apply(&[
        "--state-dir",
        state_dir.to_str().unwrap(),
        state.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", all_output(&output));
    assert_eq!(left_over(&ssh.home()), ["bin"]);
}

#[test]
fn a_machine_that_does_not_let_us_in_is_a_clear_error() {
    let site = Site::new();
    let ssh = SshServer::start(&site.path("ssh"));
    let state = site.path("nothing.sls");
    std::fs::write(&state, "yes:\n  test.nop: []\n").unwrap();
    let mut command = bunraku();
    command
        .args(["apply", "--ssh", "127.0.0.1"])
        .args(ssh.flags("stranger"))
        .arg(&state);
    let output = command.output().unwrap();
    let text = all_output(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot reach 127.0.0.1: "), "{text}");
    assert!(text.contains("Permission denied"), "{text}");
    assert!(
        text.contains("hint: pass a key with `--ssh-identity FILE`"),
        "{text}"
    );

    std::fs::write(ssh.directory.join("known_hosts"), "").unwrap();
    let output = ssh.apply(&[state.to_str().unwrap()]);
    let text = all_output(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("Host key verification failed"), "{text}");
    assert!(text.contains("compare its host key"), "{text}");

    let mut command = bunraku();
    let output = command
        .args(["apply", "--ssh=-oProxyCommand=false"])
        .arg(&state)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", all_output(&output));
}

#[test]
fn a_machine_becomes_a_node_over_ssh_and_again_without_harm() {
    let site = Site::new();
    let ssh = SshServer::start(&site.path("ssh"));
    let server = site.server("server", 0, &[]);
    let place = |name: &str| site.path(name).display().to_string();
    let (install, config, data) = (place("bin"), place("etc/bunraku.toml"), place("agent"));
    let address = server.address.to_string();
    let flags = ssh.flags("user_key");
    let mut arguments = vec!["node", "add", "127.0.0.1", "--name", "added.test"];
    arguments.extend(["--agent-server", &address, "--install-dir", &install]);
    arguments.extend(["--agent-config", &config, "--agent-dir", &data]);
    arguments.extend(flags.iter().map(String::as_str));

    let added = server.operator(&arguments);
    let pid = std::fs::read_to_string(site.path("agent/agent.pid"));
    let agent = Agent(pid.ok().and_then(|pid| pid.trim().parse().ok()));
    assert!(added.status.success(), "{}", all_output(&added));
    let text = all_output(&added);
    assert!(text.contains("joined as added.test"), "{text}");
    server.wait_for("added.test", "idle");
    let written = std::fs::read_to_string(&config).unwrap();
    assert!(written.contains(&server.fingerprint), "{written}");
    // The token is used up, and was not on any command line or in any file.
    assert_eq!(server.json(&["token", "list"]), serde_json::json!([]));

    drop(agent);
    server.wait_for("added.test", "lost");
    let again = server.operator(&arguments);
    let pid = std::fs::read_to_string(site.path("agent/agent.pid")).unwrap();
    let _agent = Agent(pid.trim().parse().ok());
    let text = all_output(&again);
    assert!(again.status.success(), "{text}");
    assert!(text.contains("is already at"), "{text}");
    assert!(text.contains("exists; not changed"), "{text}");
    assert_eq!(server.json(&["token", "list"]), serde_json::json!([]));
}

/// An agent that `node add` started.
struct Agent(Option<i32>);

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(pid) = self.0.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}
