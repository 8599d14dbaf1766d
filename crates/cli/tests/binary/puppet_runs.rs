//! Ordered runs of the Puppet that is already installed on the nodes: Debian's real one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{LAMP, Running, ServerProcess, Site, all_output};

/// A duration that no other process has among its arguments.
const NAP: &str = "86397.25";

fn write(site: &Site, name: &str, text: &str) -> PathBuf {
    let path = site.path(name);
    std::fs::write(&path, text).expect("written");
    path
}

/// Returns the file that represents what a node's Puppet manages.
fn managed(site: &Site, node: &str) -> PathBuf {
    site.path("machine").join(node)
}

/// Returns a node's manifest. Web servers fail while there is no database.
fn manifest(site: &Site, node: &str) -> String {
    let file = |node: &str| managed(site, node).display().to_string();
    let content = format!("file {{ '{}': content => \"{node}\\n\" }}\n", file(node));
    match node {
        "dev1" => content,
        _ => format!(
            "exec {{ '/usr/bin/test -e {}': }}\n-> {content}",
            file("dev1")
        ),
    }
}

/// Returns the node's own directories, as flags and as settings.
fn places(site: &Site, node: &str) -> [(&'static str, String); 4] {
    ["confdir", "vardir", "publicdir", "ssldir"].map(|name| {
        let path = site.path(&format!("{node}.puppet")).join(name);
        (name, path.display().to_string())
    })
}

fn agent(site: &Site, server: &ServerProcess, node: &str, more: &str) -> Running {
    let manifest = write(site, &format!("{node}.pp"), &manifest(site, node));
    let mut config = format!(
        "[agent]\nrun_method = \"puppet\"\nrun_interval = \"0s\"\n{more}\n[agent.puppet]\nform = \"apply\"\nmanifest = {manifest:?}\narguments = [\"--modulepath\", {:?}]\n",
        site.path("no-modules")
    );
    for (name, path) in places(site, node) {
        std::fs::create_dir_all(&path).expect("a directory");
        config.push_str(&format!("{name} = {path:?}\n"));
    }
    let config = write(site, &format!("{node}.toml"), &config);
    let flags = ["--config", config.to_str().expect("text")];
    site.agent_with(node, &[server], true, &flags)
}

fn puppet(site: &Site, node: &str, arguments: &[&str]) {
    let mut command = Command::new("puppet");
    command.args(arguments);
    for (name, path) in places(site, node) {
        command.arg(format!("--{name}")).arg(path);
    }
    let output = (command.output()).expect("puppet runs; scripts/setup test installs it");
    assert!(output.status.success(), "{}", all_output(&output));
}

/// Returns every file with its content.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(directory).expect("readable");
    let files = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        let content = std::fs::read(&path).expect("readable");
        (path, content)
    });
    files.collect()
}

/// Returns the newest report of a node.
fn report(server: &ServerProcess, node: &str) -> Value {
    let all = server.json(&["report", "list", "--node", node]);
    all[0].clone()
}

fn processes_with(argument: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("readable");
    let lines = entries.flatten().filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| word == argument.as_bytes()).then_some(())
    });
    lines.count()
}

#[test]
fn puppet_runs_in_order_and_each_kind_of_failure_is_reported() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    std::fs::create_dir(site.path("machine")).expect("made");
    let nodes = ["dev1", "dev2", "dev3", "dev4"];
    let mut agents: Vec<Running> = nodes
        .iter()
        .map(|node| agent(&site, &server, node, ""))
        .collect();
    // Its time limit is too short for its run.
    agents.push(agent(&site, &server, "dev5", "run_timeout = \"10s\""));
    for node in ["dev1", "dev2", "dev3", "dev4", "dev5"] {
        server.wait_for(node, "idle");
    }
    let lamp = write(&site, "lamp.yaml", &LAMP.replace("app1", "lamp"));
    let run = |site: &Path, more: &[&str]| {
        let site = site.to_str().expect("text");
        let flags = ["run", "--site", site, "--yes"];
        server.operator(&[&flags, more].concat())
    };

    in_order(&site, &server, &run(&lamp, &[]));
    noop_changes_nothing(&site, &server, |more| run(&lamp, more));
    failures(&site, &server, |path| {
        run(path, &["--continue-independent"])
    });
}

fn in_order(site: &Site, server: &ServerProcess, done: &std::process::Output) {
    assert_eq!(done.status.code(), Some(0), "{}", all_output(done));
    let list = server.json(&["run", "list"]);
    let id = list[0]["id"].as_str().expect("an id");
    let shown = server.json(&["run", "show", id]);
    let mut transactions = std::collections::BTreeSet::new();
    for node in ["dev1", "dev2", "dev3", "dev4"] {
        let content = std::fs::read_to_string(managed(site, node)).expect("managed");
        assert_eq!(content, format!("{node}\n"));
        let report = report(server, node);
        assert_eq!(report["started"]["method"], "puppet", "{report}");
        assert_eq!(report["started"]["causes"][0]["run"], id, "{report}");
        let changed = if node == "dev1" { 1 } else { 2 };
        assert_eq!(report["finished"]["changed"], changed, "{report}");
        let run = report["run"].as_str().expect("an id");
        assert!(shown.to_string().contains(run), "{shown}");
        let logs = all_output(&server.operator(&["report", "show", run, "--logs"]));
        let transaction = logs.split("transaction ").nth(1).expect("told");
        transactions.insert(transaction[..36].to_owned());
    }
    assert_eq!(transactions.len(), 4, "each has a report of its own");
}

fn noop_changes_nothing(
    site: &Site,
    server: &ServerProcess,
    run: impl Fn(&[&str]) -> std::process::Output,
) {
    std::fs::write(managed(site, "dev1"), "drifted\n").expect("written");
    std::fs::remove_file(managed(site, "dev2")).expect("removed");
    let before = tree(&site.path("machine"));
    let done = run(&["--noop", "--node", "dev1", "--node", "dev2"]);
    assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    assert_eq!(tree(&site.path("machine")), before);
    for (node, pending) in [("dev1", 1), ("dev2", 2)] {
        let report = report(server, node);
        assert_eq!(report["started"]["mode"], "noop", "{report}");
        assert_eq!(report["finished"]["pending"], pending, "{report}");
        assert_eq!(report["finished"]["changed"], 0, "{report}");
    }
}

fn failures(site: &Site, server: &ServerProcess, run: impl Fn(&Path) -> std::process::Output) {
    puppet(site, "dev2", &["agent", "--disable", "disk swap"]);
    write(
        site,
        "dev3.pp",
        "exec { '/bin/false': }\n-> notify { 'after': }\n",
    );
    write(site, "dev4.pp", "file { '/x': nonsense => true }\n");
    write(
        site,
        "dev5.pp",
        &format!("exec {{ '/bin/sleep {NAP}': timeout => 0 }}\n"),
    );
    let text = "applications: {a: {components: {c: {nodes: [dev2, dev3, dev4, dev5]}}}}\n";
    let done = run(&write(site, "failures.yaml", text));
    assert_eq!(done.status.code(), Some(3), "{}", all_output(&done));
    for (node, ending, failure, message) in [
        (
            "dev2",
            "disabled",
            Value::Null,
            "Puppet is disabled on this node: disk swap",
        ),
        ("dev3", "failed", Value::Null, "Exec[/bin/false] failed: "),
        ("dev4", "failed", "exit_code".into(), "nonsense"),
        (
            "dev5",
            "timed_out",
            Value::Null,
            "it exceeded its time limit of 10 s",
        ),
    ] {
        let finished = report(server, node)["finished"].clone();
        assert_eq!(finished["ending"], ending, "{node}: {finished}");
        assert_eq!(finished["failure"], failure, "{node}: {finished}");
        let text = finished["message"].as_str().expect("a message");
        assert!(text.contains(message), "{node}: {text}");
    }
    assert_eq!(report(server, "dev3")["finished"]["skipped"], 1);
    assert_eq!(processes_with(NAP), 0, "nothing that hung is left");
}
