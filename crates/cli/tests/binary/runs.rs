//! Runs and reports, with real servers and agents.

use serde_json::Value;

use crate::support::{ServerProcess, Site, all_output, eventually};

fn reports(server: &ServerProcess, flags: &[&str]) -> Vec<Value> {
    let all = server.json(&[&["report", "list"], flags].concat());
    all.as_array().expect("a list").clone()
}

#[test]
fn a_command_run_is_followed_to_its_end_and_its_output_is_in_the_report() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let script = "echo hello from the run; test \"$BUNRAKU_RUN\"";
    let flags = ["--run-method", "command", "--run-command", script];
    let _agent = site.agent_with("web-1", &[&server], true, &flags);
    server.wait_for("web-1", "idle");
    let run = server.operator(&["node", "run", "web-1", "--wait"]);
    assert_eq!(run.status.code(), Some(0), "{}", all_output(&run));
    assert!(
        all_output(&run).contains("✓ web-1  succeeded"),
        "{}",
        all_output(&run)
    );
    let report = &reports(&server, &[])[0];
    assert_eq!(
        report["started"]["causes"][0]["name"],
        "operator.server.test"
    );
    let id = report["run"].as_str().expect("an id");
    let shown = server.operator(&["report", "show", id, "--logs"]);
    assert!(
        all_output(&shown).contains("hello from the run"),
        "{}",
        all_output(&shown)
    );
    // The node refuses a noop run of a command without a noop form.
    let noop = server.operator(&["node", "run", "web-1", "--noop", "--wait"]);
    assert_eq!(noop.status.code(), Some(3), "{}", all_output(&noop));
    assert!(
        all_output(&noop).contains("not started"),
        "{}",
        all_output(&noop)
    );
    assert_eq!(reports(&server, &["--failed"]).len(), 1);
}

#[test]
fn a_disabled_node_refuses_and_runs_again_when_it_is_enabled() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let flags = ["--run-method", "command", "--run-command", "true"];
    let _agent = site.agent_with("web-1", &[&server], true, &flags);
    server.wait_for("web-1", "idle");
    server.operator(&["node", "disable", "web-1", "--reason", "disk"]);
    eventually("the node heard of it", || {
        let run = server.operator(&["node", "run", "web-1", "--wait"]);
        run.status.code() == Some(3)
            && all_output(&run).contains("disabled by operator.server.test: disk")
    });
    eventually("the report says so too", || {
        let failed = reports(&server, &["--failed"]);
        failed
            .iter()
            .any(|report| report["finished"]["ending"] == "disabled")
    });
    server.operator(&["node", "enable", "web-1"]);
    eventually("it runs again", || {
        let run = server.operator(&["node", "run", "web-1", "--wait"]);
        run.status.code() == Some(0)
    });
}

#[test]
fn a_run_continues_while_the_server_is_down_and_its_report_is_complete() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let port = server.address.port();
    let gate = site.path("gate");
    let script = format!(
        "echo one; while [ ! -e {0} ]; do sleep 0.05; done; echo two",
        gate.display()
    );
    let flags = ["--run-method", "command", "--run-command", &script];
    let _agent = site.agent_with("web-1", &[&server], true, &flags);
    server.wait_for("web-1", "idle");
    let asked = server.operator(&["node", "run", "web-1"]);
    assert_eq!(asked.status.code(), Some(0), "{}", all_output(&asked));
    eventually("the run is known", || {
        reports(&server, &["--unfinished"]).len() == 1
    });
    eventually("its queue tells who asked for it", || {
        let queue = server.json(&["node", "queue", "web-1"]);
        queue["running"]["causes"][0]["cause"] == "operator"
    });
    server.running.kill();
    std::fs::write(&gate, "").expect("written");
    let server = site.server("server", port, &[]);
    eventually("the report is finished", || {
        let all = reports(&server, &[]);
        all.len() == 1 && all[0]["finished"]["ending"] == "succeeded"
    });
    let id = reports(&server, &[])[0]["run"]
        .as_str()
        .expect("an id")
        .to_owned();
    let whole = server.json(&["report", "show", &id]);
    let events = whole["events"].as_array().expect("events");
    let numbers: Vec<u64> = events
        .iter()
        .map(|event| event["number"].as_u64().expect("a number"))
        .collect();
    assert_eq!(numbers, (0..4).collect::<Vec<_>>(), "{whole}");
    assert_eq!(events[2]["message"], "two");
}

#[test]
fn an_agent_that_is_killed_in_a_run_reports_it_as_interrupted() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let script = "echo working; exec sleep 600";
    let flags = ["--run-method", "command", "--run-command", script];
    let agent = site.agent_with("web-1", &[&server], true, &flags);
    server.wait_for("web-1", "idle");
    server.operator(&["node", "run", "web-1"]);
    eventually("the run is in progress", || {
        reports(&server, &["--unfinished"]).len() == 1
    });
    agent.kill();
    eventually("its node is lost, and so is the run", || {
        reports(&server, &["--failed"])
            .iter()
            .any(|report| report["state"] == "lost")
    });
    let _agent = site.agent_with("web-1", &[&server], false, &flags);
    eventually("the agent says what happened", || {
        let all = reports(&server, &[]);
        all.len() == 1 && all[0]["finished"]["ending"] == "interrupted"
    });
    server.wait_for("web-1", "idle");
}

#[test]
fn following_shows_events_as_they_happen_across_a_restart_of_the_server() {
    use std::io::{BufRead, BufReader};
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let port = server.address.port();
    let flags = ["--run-method", "command", "--run-command", "echo said"];
    let _agent = site.agent_with("web-1", &[&server], true, &flags);
    server.wait_for("web-1", "idle");
    let mut command = crate::support::bunraku();
    command.args([
        "report",
        "follow",
        "--all",
        "--server",
        &server.address.to_string(),
    ]);
    command.arg("--credentials").arg(server.credentials());
    let mut following = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(following.stdout.take().expect("piped")).lines();
    // Runs are requested repeatedly until the stream is open.
    let mut until = |wanted: &str, server: &ServerProcess| {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for line in lines.by_ref() {
                    if line.expect("text").contains(wanted) {
                        break;
                    }
                }
                sender.send(()).expect("somebody waits");
            });
            eventually("the events are shown", || {
                server.operator(&["node", "run", "web-1", "--wait"]);
                receiver
                    .recv_timeout(std::time::Duration::from_millis(500))
                    .is_ok()
            });
        });
    };
    until("web-1: succeeded", &server);
    server.running.kill();
    let server = site.server("server", port, &[]);
    server.wait_for("web-1", "idle");
    until("web-1: succeeded", &server);
    following.kill().expect("it can be killed");
    following.wait().expect("it ended");
}
