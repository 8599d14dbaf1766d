//! Agents that are frozen with SIGSTOP in the middle of a run, and wake up later.

use std::path::PathBuf;
use std::process::Child;

use rustix::process::Signal;

use crate::support::{Running, ServerProcess, Site, all_output, bunraku, eventually};

/// A run that begins, and ends when a file appears.
const PATIENT: &str = "echo begun >> SITE/begun; \
    while [ ! -e SITE/go ]; do sleep 0.1; done; echo done >> SITE/done";

struct Frozen {
    site: Site,
    server: ServerProcess,
    agent: Running,
}

impl Frozen {
    /// Starts a server that expects answers soon, and one agent.
    fn new() -> Self {
        let site = Site::new();
        let config = site.path("server.toml");
        std::fs::write(&config, "[server]\nagent_silence = \"4s\"\n").expect("written");
        let server = site.server("server", 0, &["--config", config.to_str().expect("text")]);
        let script = PATIENT.replace("SITE", site.path("").to_str().expect("text"));
        let flags = ["--run-method", "command", "--run-command", &script];
        let flags = [&flags[..], &["--run-interval", "0s"]].concat();
        let agent = site.agent_with("dev1", &[&server], true, &flags);
        server.wait_for("dev1", "idle");
        Self {
            site,
            server,
            agent,
        }
    }

    fn lines(&self, name: &str) -> usize {
        let text = std::fs::read_to_string(self.site.path(name)).unwrap_or_default();
        text.lines().count()
    }

    /// Starts a command of an operator, which waits for a run.
    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = bunraku();
        command.args(arguments);
        command.args(["--server", &self.server.address.to_string()]);
        command.arg("--credentials").arg(self.server.credentials());
        let out = |name| std::fs::File::create(self.site.path(name)).expect("a file");
        command.stdout(out("out")).stderr(out("err"));
        command.spawn().expect("it starts")
    }

    fn printed(&self) -> String {
        let read = |name| std::fs::read_to_string(self.site.path(name)).unwrap_or_default();
        format!("{}{}", read("out"), read("err"))
    }

    /// Waits until the server knows that the run has begun.
    fn wait_for_report(&self) {
        eventually("the report begins", || {
            let reports = self.server.json(&["report", "list"]);
            reports.as_array().is_some_and(|all| all.len() == 1)
        });
    }

    fn site_file(&self) -> PathBuf {
        let path = self.site.path("site.yaml");
        let text = "applications: {app1: {components: {db: {node: dev1}}}}\n";
        std::fs::write(&path, text).expect("written");
        path
    }
}

/// Waits for a process, which ends automatically.
fn exit_code(mut child: Child, printed: impl Fn() -> String) -> Option<i32> {
    let mut status = None;
    crate::support::eventually_or(
        "the command ends",
        || {
            status = child.try_wait().expect("it can be waited for");
            status.is_some()
        },
        printed,
    );
    status.and_then(|status| status.code())
}

#[test]
fn a_frozen_agent_is_lost_and_continues_where_it_was_when_it_wakes_up() {
    let frozen = Frozen::new();
    let path = frozen.site_file();
    let path = path.to_str().expect("text");
    let run = ["run", "--site", path, "--configured", "--yes"];
    let watching = frozen.start(&[&run[..], &["--lost-after", "2s"]].concat());
    eventually("the run begins", || frozen.lines("begun") == 1);
    // A run that nobody saw begin is cancelled instead of lost.
    frozen.wait_for_report();

    frozen.agent.signal(Signal::STOP);
    let code = exit_code(watching, || frozen.printed());
    assert_eq!(code, Some(3), "{}", frozen.printed());
    assert!(frozen.printed().contains("lost"), "{}", frozen.printed());
    frozen.server.wait_for("dev1", "lost");
    let shown = all_output(&frozen.server.operator(&["node", "show", "dev1"]));
    assert!(shown.contains("its agent did not answer"), "{shown}");

    // It wakes up in the middle of the run, learns what it missed, and finishes.
    frozen.agent.signal(Signal::CONT);
    let log = || frozen.agent.log();
    crate::support::eventually_or(
        "the agent learns that it was lost",
        || log().contains("servers counted this node as lost"),
        log,
    );
    std::fs::write(frozen.site.path("go"), "").expect("written");
    frozen.server.wait_for("dev1", "idle");
    eventually("its report arrives", || {
        let reports = frozen.server.json(&["report", "list"]);
        reports[0]["state"]["ending"] == "succeeded" || reports[0].to_string().contains("succeeded")
    });
    let reports = frozen.server.json(&["report", "list"]);
    let id = reports[0]["run"].as_str().expect("an id").to_owned();
    let report = all_output(&frozen.server.operator(&["report", "show", &id, "--logs"]));
    assert!(
        report.contains("servers counted this node as lost"),
        "{report}"
    );
    assert_eq!((frozen.lines("begun"), frozen.lines("done")), (1, 1));

    // Nothing is left of it: the next run is like any other.
    let next = frozen.server.operator(&run);
    assert_eq!(next.status.code(), Some(0), "{}", all_output(&next));
    assert_eq!((frozen.lines("begun"), frozen.lines("done")), (2, 2));
}

#[test]
fn waiting_for_a_run_of_a_frozen_agent_ends() {
    let frozen = Frozen::new();
    let waiting = frozen.start(&["node", "run", "dev1", "--wait"]);
    eventually("the run begins", || frozen.lines("begun") == 1);
    // A node that was asked and never began is another matter.
    frozen.wait_for_report();
    frozen.agent.signal(Signal::STOP);
    let code = exit_code(waiting, || frozen.printed());
    assert_eq!(code, Some(3), "{}", frozen.printed());
    assert!(frozen.printed().contains("lost"), "{}", frozen.printed());
    std::fs::write(frozen.site.path("go"), "").expect("written");
    frozen.agent.signal(Signal::CONT);
    frozen.server.wait_for("dev1", "idle");
    assert_eq!(frozen.lines("done"), 1);
}
