//! Triggers with real agents: every cue becomes a run, and loops end.

use std::path::Path;

use crate::support::{Running, ServerProcess, Site, eventually, told};

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

fn lines(file: &Path) -> usize {
    text(file).lines().count()
}

/// An agent whose runs are this script, and that runs only when it is told to.
fn agent(site: &Site, server: &ServerProcess, node: &str, script: &str, token: bool) -> Running {
    let flags = [
        "--run-method",
        "command",
        "--run-command",
        script,
        "--run-interval",
        "0s",
    ];
    site.agent_with(node, &[server], token, &flags)
}

fn fire(server: &ServerProcess, trigger: &str, hosts: &str) {
    let fired = server.operator(&["trigger", "fire", trigger, "--hosts", hosts]);
    assert_eq!(fired.status.code(), Some(0), "{}", told(&fired));
}

#[test]
fn cues_during_a_run_become_exactly_one_run_after_it() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let (runs, go) = (site.path("runs"), site.path("go"));
    let script = format!(
        "echo \"$BUNRAKU_CAUSES\" >> {}; while [ ! -e {} ]; do sleep 0.1; done",
        runs.display(),
        go.display()
    );
    let _agent = agent(&site, &server, "lb-1", &script, true);
    server.wait_for("lb-1", "idle");
    fire(&server, "first", "lb-1");
    eventually("it runs", || lines(&runs) == 1);
    for number in 0..5 {
        fire(&server, &format!("t{number}"), "lb-1");
    }
    eventually("all are delivered", || {
        server.json(&["node", "show", "lb-1"])["pending_commands"] == 0
    });
    std::fs::write(&go, "").expect("written");
    eventually("the next ran", || lines(&runs) == 2);
    server.wait_for("lb-1", "idle");
    let text = text(&runs);
    let second = text.lines().nth(1).expect("a second run");
    for number in 0..5 {
        assert!(second.contains(&format!("t{number}")), "{second}");
    }
    assert_eq!(lines(&runs), 2, "one run for five cues");
}

#[test]
fn a_node_that_was_away_runs_when_it_returns_also_after_the_server_was_killed() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let port = server.address.port();
    let runs = site.path("runs");
    let script = format!("echo run >> {}", runs.display());
    let mut first = agent(&site, &server, "lb-1", &script, true);
    server.wait_for("lb-1", "idle");
    assert_eq!(first.end(), Some(0), "{}", first.log());
    fire(&server, "while away", "lb-1");
    server.running.kill();
    let server = site.server("server", port, &[]);
    let _agent = agent(&site, &server, "lb-1", &script, false);
    eventually("it runs", || lines(&runs) == 1);
}

#[test]
fn agents_that_cue_each_other_from_their_runs_come_to_an_end() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let (runs, codes) = (site.path("runs"), site.path("codes"));
    let script = |own: &str, other: &str| {
        format!(
            "echo {own} >> {}; {} trigger fire go --hosts {other} --server {} --credentials {}; echo $? >> {}",
            runs.display(),
            env!("CARGO_BIN_EXE_bunraku"),
            server.address,
            site.path(own).join("tls").display(),
            codes.display()
        )
    };
    let _a = agent(&site, &server, "a", &script("a", "b"), true);
    let _b = agent(&site, &server, "b", &script("b", "a"), true);
    server.wait_for("a", "idle");
    server.wait_for("b", "idle");
    fire(&server, "go", "a");
    eventually("the chain is stopped", || text(&codes).ends_with("4\n"));
    assert_eq!(text(&runs), "a\nb\na\n");
    assert_eq!(text(&codes), "0\n0\n4\n");
    let history = told(&server.operator(&["trigger", "history"]));
    assert!(
        history.contains("stopped: the same node fired it before"),
        "{history}"
    );
}
