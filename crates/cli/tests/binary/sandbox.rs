//! Code that attacks the process which compiles it, and programs of repositories that look for the
//! server's keys. Workers are real processes.
//!
//! The functions `attack.…` exist in debug builds only: the limits of the languages stop all known
//! attacks before they reach the process.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use serde_json::{Value, json};

use crate::code::{commit, repository};
use crate::support::{Running, ServerProcess, Site, all_output, eventually};

/// A server with small limits for workers.
fn server(site: &Site, port: u16, settings: &str) -> ServerProcess {
    let file = site.path("server.toml");
    std::fs::write(&file, format!("[server.compile]\n{settings}")).expect("a file");
    let config = file.to_string_lossy().into_owned();
    site.server("server", port, &["--config", &config])
}

fn node(site: &Site, server: &ServerProcess, name: &str) -> Running {
    let agent = site.agent(name, &[server], true);
    eventually("facts are there", || {
        let shown = server.operator(&["facts", "show", name, "kernel"]);
        shown.stdout == b"Linux\n"
    });
    agent
}

fn good(server: &ServerProcess, words: &[&str]) -> String {
    let output = server.operator(words);
    assert_eq!(output.status.code(), Some(0), "{}", all_output(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn add(server: &ServerProcess, name: &str, code: &Path) {
    let url = format!("file://{}", code.display());
    good(server, &["environment", "add", name, &url]);
}

/// Returns the newest outcome of a node.
fn outcome(server: &ServerProcess, node: &str) -> Value {
    let all = server.json(&["compile", "list"]);
    let all = all.as_array().expect("a list");
    let one = all.iter().find(|status| status["node"] == node);
    one.expect("the node")["last"]["outcome"].clone()
}

fn deaths(server: &ServerProcess) -> usize {
    server
        .running
        .log()
        .matches("a compile killed its worker")
        .count()
}

/// A top file, and states that attack their worker on `web-1` only.
fn attack(function: &str) -> Vec<(&'static str, String)> {
    let states = format!(
        "{{% if grains['id'] == 'web-1' %}}\n{{{{ salt['{function}']() }}}}\n{{% endif %}}\n/etc/motd:\n  file.managed:\n    - contents: hello\n"
    );
    vec![
        ("top.sls", "base:\n  '*':\n    - attack\n".to_owned()),
        ("attack.sls", states),
    ]
}

fn borrowed<'a>(files: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    let files = files.iter();
    files.map(|(path, text)| (*path, text.as_str())).collect()
}

#[test]
fn code_that_kills_its_worker_is_quarantined_and_nothing_else_suffers() {
    let site = Site::new();
    let server = server(
        &site,
        0,
        "worker_memory = 128\nworker_time_limit = \"3s\"\n",
    );
    let (_one, _two) = (node(&site, &server, "web-1"), node(&site, &server, "web-2"));
    let code = repository(&site, &borrowed(&attack("attack.stack")));
    add(&server, "production", &code);
    let mut killed = 0;
    for (function, cause) in [
        ("attack.stack", "killed by a stack overflow"),
        ("attack.memory", "killed by the memory limit of 128 MiB"),
        ("attack.cpu", "killed by the CPU limit of 3 s"),
    ] {
        if killed > 0 {
            commit(&code, &borrowed(&attack(function)));
        }
        let deployed = server.operator(&["environment", "deploy", "production", "--wait"]);
        let said = all_output(&deployed);
        assert_eq!(deployed.status.code(), Some(3), "{said}");
        let cause = match function {
            // The clock may be faster than the processor on a busy machine.
            "attack.cpu" if !said.contains(cause) => "did not answer within 3 s",
            _ => cause,
        };
        assert!(said.contains(cause), "{function}: {said}");
        assert!(
            said.contains("Quarantined: this compile killed its worker 2 times"),
            "{said}"
        );
        killed += 2;
        assert_eq!(deaths(&server), killed, "{function}");
        // Other nodes are compiled.
        assert!(
            outcome(&server, "web-2")["outcome"] == "compiled",
            "{function}"
        );
        let one = outcome(&server, "web-1");
        assert_eq!(one["quarantined"], true, "{one}");
    }
    // It is visible everywhere.
    let shown = good(&server, &["node", "show", "web-1"]);
    assert!(
        shown.contains("compile         quarantined: the compiler"),
        "{shown}"
    );
    let listed = good(&server, &["compile", "list", "--failed"]);
    assert!(
        listed.contains("quarantined") && !listed.contains("web-2"),
        "{listed}"
    );
    let shown = good(&server, &["environment", "show", "production"]);
    assert!(shown.contains("1 failed, 1 of them quarantined"), "{shown}");
    // The same inputs are not tried again, even after a restart and another deploy.
    let port = server.address.port();
    server.running.kill();
    let log = site.path("server.log");
    let server = self::server(
        &site,
        port,
        "worker_memory = 128\nworker_time_limit = \"3s\"\n",
    );
    let before = std::fs::read_to_string(&log).expect("a log");
    let before = before.matches("a compile killed its worker").count();
    let deployed = server.operator(&["environment", "deploy", "production", "--wait"]);
    assert_eq!(deployed.status.code(), Some(3), "{}", all_output(&deployed));
    assert_eq!(deaths(&server), before, "tried again without a reason");
    assert_eq!(outcome(&server, "web-1")["quarantined"], true);
    // A person may ask, and other inputs are tried.
    let asked = server.operator(&["compile", "web-1", "--wait"]);
    assert_eq!(asked.status.code(), Some(3), "{}", all_output(&asked));
    assert_eq!(deaths(&server), before + 2, "not tried for a person");
    commit(&code, &borrowed(&attack("grains.get")));
    let deployed = server.operator(&["environment", "deploy", "production", "--wait"]);
    let said = all_output(&deployed);
    assert_eq!(deaths(&server), before + 2, "{said}");
    assert_ne!(outcome(&server, "web-1")["quarantined"], true, "{said}");
}

#[test]
fn a_server_that_dies_while_it_compiles_a_node_ends_the_loop() {
    let site = Site::new();
    let settings = "worker_time_limit = \"10m\"\n";
    let mut server = server(&site, 0, settings);
    let agent = node(&site, &server, "web-1");
    let code = repository(&site, &borrowed(&attack("attack.cpu")));
    add(&server, "production", &code);
    good(&server, &["environment", "deploy", "production"]);
    drop(agent);
    let port = server.address.port();
    for _ in 0..3 {
        eventually("the node is compiled", || {
            let queue = server.json(&["compile", "queue"]);
            queue[0]["started"].is_string()
        });
        server.running.kill();
        server = self::server(&site, port, settings);
    }
    eventually("the node is quarantined", || {
        outcome(&server, "web-1")["quarantined"] == true
    });
    let one = outcome(&server, "web-1");
    let message = "the server ended while it compiled the node";
    assert_eq!(one["problems"][0]["message"], message, "{one}");
    // A server that stops in an orderly way is not counted.
    good(&server, &["compile", "web-1"]);
    for _ in 0..4 {
        eventually("the node is compiled", || {
            let queue = server.json(&["compile", "queue"]);
            queue[0]["started"].is_string()
        });
        server.running.end();
        server = self::server(&site, port, settings);
    }
    eventually("the node is compiled", || {
        let queue = server.json(&["compile", "queue"]);
        queue[0]["started"].is_string()
    });
}

#[test]
fn a_worker_sees_its_commit_and_nothing_else() {
    let site = Site::new();
    let server = server(&site, 0, "");
    let _agent = node(&site, &server, "web-1");
    let data = site.path("server");
    let key = std::fs::read_dir(data.join("ca")).expect("a CA").flatten();
    let key = key
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("key"));
    let key = key.expect("the key of the CA");
    let paths = [
        ("attack.read", key.display().to_string()),
        ("attack.read", "/etc/passwd".to_owned()),
        ("attack.read", "/proc/self/environ".to_owned()),
        ("attack.list", data.display().to_string()),
        ("attack.list", data.join("code").display().to_string()),
        ("attack.list", "/".to_owned()),
        ("attack.write", site.path("written").display().to_string()),
        ("attack.connect", server.address.to_string()),
        ("attack.fork", String::new()),
    ];
    let calls: Vec<String> = (paths.iter().enumerate())
        .map(|(number, (function, path))| {
            format!("attack-{number}:\n  test.nop:\n    - name: {{{{ salt['{function}']({path:?}) | json }}}}\n")
        })
        .collect();
    let top = "base:\n  '*':\n    - attack\n";
    let code = repository(&site, &[("top.sls", top), ("attack.sls", &calls.concat())]);
    add(&server, "production", &code);
    good(&server, &["environment", "deploy", "production", "--wait"]);
    let catalog = server.json(&["catalog", "show", "web-1"]);
    let text = catalog.to_string();
    assert!(!text.contains("succeeded"), "{text}");
    let refused = text.matches("ermission denied").count() + text.matches("not permitted").count();
    assert!(refused >= paths.len(), "{text}");
}

#[test]
fn nesting_in_facts_files_and_templates_is_an_error_and_no_crash() {
    let site = Site::new();
    let server = server(&site, 0, "");
    let _agent = node(&site, &server, "web-1");
    let top = ("top.sls", "base:\n  '*':\n    - deep\n");
    let loops = "{% set ns = namespace(x=[]) %}\n{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}\na:\n  test.nop: []\n";
    let code = repository(&site, &[top, ("deep.sls", loops)]);
    add(&server, "production", &code);
    let deploy = || server.operator(&["environment", "deploy", "production", "--wait"]);
    assert_eq!(deploy().status.code(), Some(3));
    // 15 KB of a fact in a state file.
    let nested = format!("a: {}{}\n", "[".repeat(7_500), "]".repeat(7_500));
    commit(&code, &[("deep.sls", &nested)]);
    assert_eq!(deploy().status.code(), Some(3));
    // Each line nests the one before it.
    let mut bomb = "a0: &a0 [x]\n".to_owned();
    for number in 1..5_000 {
        bomb.push_str(&format!("a{number}: &a{number} [*a{}]\n", number - 1));
    }
    commit(&code, &[("bunraku.yaml", &bomb)]);
    let deployed = deploy();
    assert_eq!(deployed.status.code(), Some(1), "{}", all_output(&deployed));
    assert!(
        all_output(&deployed).contains("bunraku.yaml"),
        "{}",
        all_output(&deployed)
    );
    commit(
        &code,
        &[
            ("bunraku.yaml", "compiler: states\n"),
            ("deep.sls", "a:\n  test.nop: []\n"),
        ],
    );
    let deployed = deploy();
    assert_eq!(deployed.status.code(), Some(0), "{}", all_output(&deployed));
    assert_eq!(deaths(&server), 0, "the languages stop it first");
}

/// A compiler that reports what it can reach.
const CURIOUS: &str = r#"#!/usr/bin/env python3
import json, os, sys
data, key = "DATA", "KEY"
def attempt(work):
    try:
        return repr(work())
    except Exception as error:
        return type(error).__name__
for line in sys.stdin:
    request = json.loads(line)
    here = os.getcwd()
    found = {
        'uid': os.getuid(), 'gid': os.getgid(), 'groups': os.getgroups(),
        'key': attempt(lambda: open(key).read()),
        'key_from_here': attempt(lambda: open(os.path.relpath(key, here)).read()),
        'data': sorted(os.listdir(data)),
        'below': [entry for root, _, files in os.walk(data) for entry in files if not root.startswith(here)],
        'own_files': sorted(os.listdir(here)),
        'write_here': attempt(lambda: open('written', 'w')),
        'write_data': attempt(lambda: open(data + '/written', 'w')),
        'write_tmp': attempt(lambda: open('/tmp/written', 'w').write('x')),
        'processes': [name for name in os.listdir('/proc') if name.isdigit()],
        'environment': sorted(os.environ),
        'become_root': attempt(lambda: os.setuid(0)),
        'mount': os.system('umount ' + data + ' 2>/dev/null') != 0,
    }
    catalog = {'name': request['node'], 'resources': [{'type': 'Notify', 'title': 'found', 'parameters': {'message': json.dumps(found)}}]}
    print(json.dumps({'id': request['id'], 'catalog': catalog}), flush=True)
"#;

#[test]
fn a_program_of_a_repository_needs_permission_and_cannot_reach_the_data_directory() {
    let site = Site::new();
    let server = server(&site, 0, "");
    let _agent = node(&site, &server, "web-1");
    let data = site.path("server");
    let key = data.join("ca").join("key.pem");
    let key = if key.exists() {
        key
    } else {
        a_key_in(&data.join("ca"))
    };
    std::fs::read(&key).expect("the test itself can read it");
    let program = CURIOUS
        .replace("DATA", &data.to_string_lossy())
        .replace("KEY", &key.to_string_lossy());
    let settings = "compiler: external\ncommand: [./compile.py]\n";
    let code = repository(
        &site,
        &[("bunraku.yaml", settings), ("compile.py", &program)],
    );
    add(&server, "production", &code);
    let deploy = || server.operator(&["environment", "deploy", "production", "--wait"]);
    let refused = all_output(&deploy());
    assert!(refused.starts_with("exit 1"), "{refused}");
    let expected = "bunraku environment set production --allow-external-compiler";
    assert!(refused.contains(expected), "{refused}");
    good(
        &server,
        &[
            "environment",
            "set",
            "production",
            "--allow-external-compiler",
        ],
    );
    let shown = good(&server, &["environment", "show", "production"]);
    assert!(shown.contains("allowed (`compiler: external`)"), "{shown}");
    let deployed = deploy();
    if !rustix::process::geteuid().is_root() {
        assert!(
            all_output(&deployed).contains("cannot change its user"),
            "{}",
            all_output(&deployed)
        );
        return;
    }
    assert_eq!(deployed.status.code(), Some(0), "{}", all_output(&deployed));
    let found = what_was_found(&server);
    assert_ne!(found["uid"], 0, "{found}");
    assert_eq!(found["uid"], found["gid"], "{found}");
    assert_eq!(found["groups"], json!([]), "{found}");
    for what in [
        "key",
        "key_from_here",
        "write_here",
        "write_data",
        "become_root",
    ] {
        let answer = found[what].as_str().expect("text");
        assert!(
            ["PermissionError", "FileNotFoundError", "OSError"].contains(&answer),
            "{what}: {found}"
        );
    }
    assert_eq!(found["data"], json!(["code"]), "only its own tree: {found}");
    assert_eq!(found["below"], json!([]), "{found}");
    assert_eq!(
        found["own_files"],
        json!(["bunraku.yaml", "compile.py"]),
        "{found}"
    );
    assert_eq!(found["write_tmp"], "1", "{found}");
    assert_eq!(found["processes"], json!(["1"]), "{found}");
    assert_eq!(found["mount"], true, "{found}");
    assert!(!site.path("server").join("written").exists());
    // Without the permission, nodes keep their catalogs and say why.
    good(
        &server,
        &[
            "environment",
            "set",
            "production",
            "--deny-external-compiler",
        ],
    );
    let compiled = server.operator(&["compile", "web-1", "--wait"]);
    assert_eq!(compiled.status.code(), Some(3), "{}", all_output(&compiled));
    assert!(
        all_output(&compiled).contains("does not allow"),
        "{}",
        all_output(&compiled)
    );
    what_was_found(&server);
}

fn a_key_in(directory: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(directory).expect("a CA").flatten();
    let mut keys = entries.map(|entry| entry.path());
    let key = keys.find(|path| path.to_string_lossy().contains("key"));
    key.expect("the key of the CA")
}

/// Returns what the curious compiler wrote into the catalog.
fn what_was_found(server: &ServerProcess) -> Value {
    let catalog = server.json(&["catalog", "show", "web-1"]);
    let message = find(&catalog, "message").expect("a message");
    serde_json::from_str(message.as_str().expect("text")).expect("JSON")
}

fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(members) => {
            (members.get(name)).or_else(|| members.values().find_map(|member| find(member, name)))
        }
        Value::Array(items) => items.iter().find_map(|item| find(item, name)),
        _ => None,
    }
}

/// A gate at which a compiler waits: it connects, and works when it receives a byte. Without the
/// gate, it does not wait.
pub(crate) struct Gate(TcpListener);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    /// Returns a program that makes one resource, `Notify[done]`.
    pub(crate) fn program(&self) -> String {
        let port = self.0.local_addr().expect("an address").port();
        format!(
            "#!/usr/bin/env python3
import json, socket, sys
for line in sys.stdin:
    request = json.loads(line)
    try:
        socket.create_connection(('127.0.0.1', {port})).recv(1)
    except OSError:
        pass
    catalog = {{'name': request['node'], 'resources': [{{'type': 'Notify', 'title': 'done'}}]}}
    print(json.dumps({{'id': request['id'], 'catalog': catalog}}), flush=True)
"
        )
    }

    /// Waits until a compiler is at the gate.
    pub(crate) fn wait(&self) -> AtGate {
        AtGate(self.0.accept().expect("a connection").0)
    }
}

/// A compiler at the gate.
pub(crate) struct AtGate(TcpStream);

impl AtGate {
    pub(crate) fn open(mut self) {
        self.0.write_all(b"x").expect("it waits");
        // It is through when it closes its end, or dies.
        let _ = self.0.read(&mut [0]);
    }
}
