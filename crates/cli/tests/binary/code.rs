//! Code from git to catalogs, with a server that is killed, and repositories behind ssh and https.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sandbox::Gate;
use crate::ssh::SshServer;
use crate::support::{
    ONE_GROUP, ServerProcess, Site, all_output, bunraku, ended, eventually, run, write_and_commit,
};

pub(crate) fn commit(repository: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        std::fs::write(repository.join(path), text).expect("a file");
    }
    run(repository, "chmod", &["-R", "u+x", "."]);
    write_and_commit(repository, &[]);
}

pub(crate) fn repository(site: &Site, files: &[(&str, &str)]) -> PathBuf {
    let path = site.path("code");
    std::fs::create_dir_all(&path).expect("a directory");
    commit(&path, files);
    path
}

/// Creates the environment `production` with these resources for all nodes, deploys it and
/// creates a release.
pub(crate) fn release_to_all(site: &Site, server: &ServerProcess, resources: &str) {
    let code = repository(site, &[ONE_GROUP, ("all.yaml", resources)]);
    let url = format!("file://{}", code.display());
    for arguments in [
        &["environment", "add", "production", &url][..],
        &["environment", "deploy", "production", "--wait"],
        &["release", "create", "production"],
    ] {
        ended(&server.operator(arguments), 0);
    }
}

const SITE: &[(&str, &str)] = &[
    ONE_GROUP,
    (
        "all.yaml",
        "resources:\n  File[/etc/motd]: {content: hello}\n",
    ),
];

/// Starts a server and one node with facts.
fn fleet(site: &Site, environment: &[(&str, &str)]) -> (ServerProcess, crate::support::Running) {
    let server = site.server_with("server", 0, &[], environment);
    let agent = site.agent("web-1", &[&server], true);
    server.wait_for_facts("web-1");
    (server, agent)
}

fn add(server: &ServerProcess, url: &str) {
    let added = server.operator(&["environment", "add", "production", url]);
    assert_eq!(added.status.code(), Some(0), "{}", all_output(&added));
}

/// Adds an environment whose repository the server cannot read: refused, unless asked not to check.
fn add_unreadable(server: &ServerProcess, url: &str) {
    let refused = server.operator(&["environment", "add", "production", url]);
    let text = all_output(&refused);
    assert!(!refused.status.success(), "{text}");
    assert!(text.contains("cannot read the repository"), "{text}");
    assert!(text.contains("--no-check"), "{text}");
    let added = server.operator(&["environment", "add", "production", url, "--no-check"]);
    assert_eq!(added.status.code(), Some(0), "{}", all_output(&added));
}

/// Returns the exit code and output of `deploy --wait`, without the commit.
fn deploy(server: &ServerProcess) -> (Option<i32>, String) {
    let output = server.operator(&["environment", "deploy", "production", "--wait"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text: Vec<String> = text
        .lines()
        .map(|line| match line.rsplit_once("  ") {
            Some((begin, commit)) if line.starts_with("deploy") && commit.len() == 8 => {
                format!("{begin}  COMMIT")
            }
            _ => line.to_owned(),
        })
        .collect();
    (output.status.code(), text.join("\n"))
}

#[test]
fn a_deploy_says_what_it_did_and_what_is_wrong_with_place_and_nodes() {
    let site = Site::new();
    let (server, _agent) = fleet(&site, &[]);
    let code = repository(&site, SITE);
    add(&server, &format!("file://{}", code.display()));
    let (exit, text) = deploy(&server);
    assert_eq!(
        (exit, text.as_str()),
        (Some(0), "deploy 1  production  COMMIT\n  ✓ 1 node compiled")
    );
    commit(&code, &[("all.yaml", "resources:\n  Nothing: {}\n")]);
    let (exit, text) = deploy(&server);
    let expected = "deploy 2  production  COMMIT
  ✓ 0 nodes compiled
  ✗ 1 node failed and kept the previous catalog

✗ all.yaml:2:3: `Nothing` is not a reference of the form `Type[title]`
  on 1 node: web-1";
    assert_eq!((exit, text.as_str()), (Some(3), expected));
    let compiled = server.operator(&["compile", "web-1", "--wait"]);
    assert_eq!(compiled.status.code(), Some(3), "{}", all_output(&compiled));
    commit(&code, &[("bunraku.yaml", "compiler: magic\n")]);
    let (exit, text) = deploy(&server);
    assert_eq!(exit, Some(1), "{text}");
    assert!(
        text.contains("bunraku.yaml:1:11: `magic` is not a compiler"),
        "{text}"
    );
    let queue = server.json(&["compile", "queue"]);
    assert_eq!(queue, serde_json::json!([]));
    let nobody = server.operator(&["compile"]);
    assert_eq!(nobody.status.code(), Some(64), "{}", all_output(&nobody));
    let nowhere = server.operator(&["node", "assign", "web-1", "nowhere"]);
    assert_eq!(nowhere.status.code(), Some(1), "{}", all_output(&nowhere));
}

#[test]
fn the_changes_of_a_commit_are_shown_per_node_before_it_is_deployed() {
    let site = Site::new();
    let (server, _agent) = fleet(&site, &[]);
    let _second = site.agent("web-2", &[&server], true);
    eventually("facts of the second are there", || {
        let shown = server.operator(&["facts", "show", "web-2", "kernel"]);
        shown.stdout == b"Linux\n"
    });
    let code = repository(&site, SITE);
    add(&server, &format!("file://{}", code.display()));
    let (exit, text) = deploy(&server);
    assert_eq!(exit, Some(0), "{text}");
    let groups = "groups:
  all: {nodes: '*', resources: all.yaml}
  first: {nodes: web-1, resources: first.yaml}
";
    let all = "resources:\n  File[/etc/motd]: {content: goodbye}\n";
    let first = "resources:\n  Notify[first]: {}\n";
    commit(
        &code,
        &[
            ("site.yaml", groups),
            ("all.yaml", all),
            ("first.yaml", first),
        ],
    );
    let head = Command::new("git")
        .current_dir(&code)
        .args(["rev-parse", "HEAD"])
        .output()
        .expect("git runs; scripts/setup installs it");
    let head = String::from_utf8(head.stdout).expect("text");
    let before = server.json(&["catalog", "list"]);
    let arguments = [
        "catalog",
        "diff",
        "--commit",
        head.trim(),
        "--detailed-exitcodes",
    ];
    let output = server.operator(&arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{}", all_output(&output));
    for line in ["- hello", "+ goodbye", "+ Notify[first]", "web-1", "web-2"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let told_all = all_output(&output);
    assert!(
        told_all.contains("2 nodes compared: 2 changed, 0 unchanged"),
        "{told_all}"
    );
    assert_eq!(
        server.json(&["catalog", "list"]),
        before,
        "nothing came of it"
    );
    let one = server.operator(&["catalog", "diff", "web-2", "--commit", head.trim()]);
    let text = String::from_utf8_lossy(&one.stdout).into_owned();
    assert!(
        text.contains("+ goodbye") && !text.contains("first"),
        "{text}"
    );
}

/// A file before its directory: this works in inferred order and fails in file order, the default
/// for states.
const BACKWARDS: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*':\n    - site\n"),
    (
        "site.sls",
        "/site/motd:\n  file.managed:\n    - contents: hello\n/site:\n  file.directory: []\n",
    ),
];

#[test]
fn a_node_applies_in_the_order_of_its_environment_unless_its_agent_has_another() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let root = site.path("root");
    std::fs::create_dir(&root).expect("a root");
    let root_flag = root.display().to_string();
    let agent = |token: bool, flags: &[&str]| {
        let own = ["--root", &root_flag, "--run-interval", "0s"];
        site.agent_with("web-1", &[&server], token, &[&own, flags].concat())
    };
    let running = agent(true, &[]);
    server.wait_for_facts("web-1");
    let code = repository(&site, BACKWARDS);
    let url = format!("file://{}", code.display());
    let add = [
        "environment",
        "add",
        "production",
        &url,
        "--order",
        "genius",
    ];
    let added = server.operator(&add);
    assert_eq!(added.status.code(), Some(0), "{}", all_output(&added));
    let shown = all_output(&server.operator(&["environment", "show", "production"]));
    assert!(shown.contains("order        genius\n"), "{shown}");
    let listed = all_output(&server.operator(&["environment", "list"]));
    assert!(
        listed.contains("ORDER") && listed.contains("genius"),
        "{listed}"
    );
    assert_eq!(deploy(&server).0, Some(0));
    let release = || {
        for words in [
            &["release", "create", "production"][..],
            &["release", "show", "production", "--wait"],
        ] {
            let released = server.operator(words);
            assert_eq!(released.status.code(), Some(0), "{}", all_output(&released));
        }
    };
    release();
    let run = |expected: i32, why: &str| {
        let run = server.operator(&["node", "run", "web-1", "--wait"]);
        assert_eq!(
            run.status.code(),
            Some(expected),
            "{why}: {}",
            all_output(&run)
        );
        let _ = std::fs::remove_dir_all(root.join("site"));
    };
    run(0, "the environment's order");
    running.kill();
    let configuration = site.path("agent.toml");
    std::fs::write(&configuration, "[agent]\norder = \"ansible\"\n").expect("written");
    let configured = ["--config", &configuration.display().to_string()];
    let running = agent(false, &configured);
    run(3, "the order of the agent's configuration");
    running.kill();
    let flags = [&configured[..], &["--order", "genius"]].concat();
    let running = agent(false, &flags);
    run(0, "the agent's command line wins over its configuration");
    running.kill();
    let running = agent(false, &[]);
    run(0, "the environment's order again");
    let set = server.operator(&["environment", "set", "production", "--default-order"]);
    assert_eq!(set.status.code(), Some(0), "{}", all_output(&set));
    assert_eq!(deploy(&server).0, Some(0));
    release();
    run(3, "the default order");
    drop(running);
}

#[test]
fn a_server_that_is_killed_while_a_compiler_works_loses_nothing() {
    let site = Site::new();
    let (server, agent) = fleet(&site, &[]);
    let gate = Gate::new();
    let script = gate.program();
    let settings = "compiler: external\ncommand: [./compile.py]\ntime_limit: 600\n";
    let files = [("bunraku.yaml", settings), ("compile.py", script.as_str())];
    let code = repository(&site, &files);
    let url = format!("file://{}", code.display());
    let allowed = "--allow-external-compiler";
    let added = server.operator(&["environment", "add", "production", &url, allowed]);
    assert_eq!(added.status.code(), Some(0), "{}", all_output(&added));
    let asked = server.operator(&["environment", "deploy", "production"]);
    assert_eq!(asked.status.code(), Some(0), "{}", all_output(&asked));
    let first = gate.wait();
    let port = server.address.port();
    drop(agent);
    server.running.kill();
    let server = site.server("server", port, &[]);
    gate.wait().open();
    drop((first, gate));
    let compiled = server.operator(&["compile", "web-1", "--wait"]);
    assert_eq!(compiled.status.code(), Some(0), "{}", all_output(&compiled));
    let shown = server.json(&["environment", "show", "production"]);
    assert_eq!(shown["progress"]["compiled"], 1, "{shown}");
}

/// Returns the process ids of Ruby programs that this process started.
fn ruby_children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("processes");
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
            text.contains("(ruby)")
                && after_name.split_whitespace().nth(1) == Some(&parent.to_string())
        })
        .collect()
}

#[test]
fn puppet_code_that_never_ends_ends_with_its_server() {
    let site = Site::new();
    let (server, agent) = fleet(&site, &[]);
    std::fs::create_dir_all(site.path("code").join("manifests")).expect("a directory");
    let manifest = "$x = inline_template('<% loop {} %>')\n";
    let code = repository(&site, &[("manifests/site.pp", manifest)]);
    add(&server, &format!("file://{}", code.display()));
    let asked = server.operator(&["environment", "deploy", "production"]);
    assert_eq!(asked.status.code(), Some(0), "{}", all_output(&asked));
    // A worker uses the processor for more than a second only in the endless loop.
    let busy = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = fields.split_whitespace().nth(11);
        ticks
            .and_then(|ticks| ticks.parse::<u64>().ok())
            .unwrap_or(0)
            > 500
    };
    let mut workers = Vec::new();
    eventually("a worker is busy", || {
        workers = ruby_children(server.running.id());
        workers.iter().any(busy)
    });
    drop(agent);
    server.running.kill();
    eventually("the workers are gone", || {
        workers
            .iter()
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    });
}

#[test]
fn code_is_fetched_over_ssh_and_a_refused_key_is_reported() {
    let site = Site::new();
    let ssh = SshServer::start(&site.path("ssh"));
    let place = ssh.directory.display();
    let command = format!(
        "ssh -o BatchMode=yes -o IdentitiesOnly=yes -o UserKnownHostsFile={place}/known_hosts -i {place}/KEY"
    );
    let code = repository(&site, SITE);
    let url = format!("ssh://root@127.0.0.1:{}{}", ssh.port, code.display());
    let good = command.replace("KEY", "user_key");
    let (server, _agent) = fleet(&site, &[("GIT_SSH_COMMAND", &good)]);
    add(&server, &url);
    let (exit, text) = deploy(&server);
    assert_eq!(exit, Some(0), "{text}");
    drop(server);
    let other = Site::new();
    let bad = command.replace("KEY", "stranger");
    let (server, _agent) = fleet(&other, &[("GIT_SSH_COMMAND", &bad)]);
    add_unreadable(&server, &url);
    let (exit, text) = deploy(&server);
    assert_eq!(exit, Some(1), "{text}");
    assert!(text.contains("Permission denied"), "{text}");
}

/// A web server for files, with TLS.
struct WebServer {
    child: std::process::Child,
    port: u16,
}

impl WebServer {
    fn start(site: &Site, directory: &Path) -> Self {
        let (key, certificate) = (site.path("web.key"), site.path("web.pem"));
        let request = [
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ];
        let (key_text, pem) = (key.display().to_string(), certificate.display().to_string());
        let files = ["-keyout", key_text.as_str(), "-out", pem.as_str()];
        run(directory, "openssl", &[&request[..], &files[..]].concat());
        let script = format!(
            "import http.server, ssl
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain({pem:?}, {key_text:?})
server.socket = context.wrap_socket(server.socket, server_side=True)
open({port:?}, 'w').write(str(server.server_port))
server.serve_forever()",
            port = site.path("web.port")
        );
        let child = Command::new("python3")
            .current_dir(directory)
            .args(["-c", &script])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 runs; scripts/setup installs it");
        let mut port = None;
        eventually("the web server listens", || {
            let printed = std::fs::read_to_string(site.path("web.port"));
            port = printed.ok().and_then(|text| text.parse().ok());
            port.is_some()
        });
        let port = port.expect("it listens");
        Self { child, port }
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn code_comes_over_https_from_a_server_that_is_trusted_and_from_no_other() {
    let site = Site::new();
    let code = repository(&site, SITE);
    let bare = site.path("bare");
    std::fs::create_dir_all(&bare).expect("a directory");
    let from = code.display().to_string();
    run(
        &bare,
        "git",
        &["clone", "--quiet", "--bare", &from, "code.git"],
    );
    run(&bare.join("code.git"), "git", &["update-server-info"]);
    let web = WebServer::start(&site, &bare);
    let url = format!("https://127.0.0.1:{}/code.git", web.port);
    let trusted = site.path("web.pem").display().to_string();
    let (server, _agent) = fleet(&site, &[("GIT_SSL_CAINFO", &trusted)]);
    add(&server, &url);
    let (exit, text) = deploy(&server);
    assert_eq!(exit, Some(0), "{text}");
    drop(server);
    let other = Site::new();
    let (server, _agent) = fleet(&other, &[]);
    add_unreadable(&server, &url);
    let (exit, text) = deploy(&server);
    assert_eq!(exit, Some(1), "{text}");
    assert!(text.contains("certificate"), "{text}");
}

#[test]
fn a_server_with_a_relative_data_directory_compiles() {
    let site = Site::new();
    let code = repository(&site, SITE);
    let mut command = bunraku();
    command
        .current_dir(site.path("."))
        .args(["server", "--listen", "127.0.0.1:0", "--name", "server.test"])
        .args(["--data-dir", "relative"]);
    let server = site.started(command, "relative");
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for_facts("web-1");
    let url = format!("file://{}", code.display());
    for arguments in [
        &["environment", "add", "production", &url][..],
        &["environment", "deploy", "production", "--wait"],
    ] {
        let output = server.operator(arguments);
        ended(&output, 0);
    }
}
