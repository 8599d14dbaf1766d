//! Plans that bind: a run does exactly what its plan says, whatever is released in the meantime.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::{
    Running, ServerProcess, Site, all_output, bunraku, eventually, write_and_commit,
};

const NODES: [&str; 2] = ["db1", "web1"];
const ORDER: &str = "applications:
  shop:
    components:
      db: {node: db1, produces: [sql]}
      web: {node: web1, consumes: [sql]}
";

/// A server with two agents that apply released catalogs, and run only when they are asked to.
struct Fleet {
    site: Site,
    server: ServerProcess,
    _agents: Vec<Running>,
}

impl Fleet {
    fn new() -> Self {
        let site = Site::new();
        let server = site.server("server", 0, &[]);
        let flags = ["--run-interval", "0s"];
        let agents = NODES.map(|node| site.agent_with(node, &[&server], true, &flags));
        for node in NODES {
            eventually("facts are there", || {
                let shown = server.operator(&["facts", "show", node, "kernel"]);
                shown.stdout == b"Linux\n"
            });
        }
        std::fs::write(site.path("site.yaml"), ORDER).expect("written");
        Self {
            site,
            server,
            _agents: agents.into(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.site.path(name).display().to_string()
    }

    fn order(&self) -> String {
        self.path("site.yaml")
    }

    /// Commits and deploys states: `db1` waits for the file `go`, `web1` fails if the file `bad`
    /// exists, and both write the version.
    fn deploy(&self, version: &str) {
        let code = self.site.path("code");
        let first = !code.exists();
        let top = "base:\n  'db1': [database]\n  'web1': [web]\n".to_owned();
        let (go, bad) = (self.path("go"), self.path("bad"));
        let database = format!(
            "{}:\n  file.managed:\n    - contents: {version}\n  cmd.run:\n    - name: 'while [ ! -e {go} ]; do sleep 0.05; done'\n",
            self.path("db")
        );
        let web = format!(
            "check:\n  cmd.run:\n    - name: 'echo the disk is full >&2; test ! -e {bad}'\n{}:\n  file.managed:\n    - contents: {version}\n    - require: [cmd: check]\n",
            self.path("web")
        );
        let files = [
            ("top.sls", &*top),
            ("database.sls", &*database),
            ("web.sls", &*web),
        ];
        write_and_commit(&code, &files);
        if first {
            let url = format!("file://{}", code.display());
            self.done(&["environment", "add", "production", &url]);
        }
        self.done(&["environment", "deploy", "production", "--wait"]);
    }

    fn release(&self, version: &str) {
        self.deploy(version);
        self.done(&["release", "create", "production"]);
        self.done(&["release", "show", "production", "--wait"]);
    }

    /// Executes a command that must succeed, and returns its output.
    fn done(&self, arguments: &[&str]) -> String {
        self.exits(0, arguments)
    }

    fn exits(&self, code: i32, arguments: &[&str]) -> String {
        let done = self.server.operator(arguments);
        assert_eq!(
            done.status.code(),
            Some(code),
            "{arguments:?}: {}",
            all_output(&done)
        );
        all_output(&done)
    }

    fn plan(&self, more: &[&str]) -> Value {
        let order = self.order();
        self.server
            .json(&[&["plan", "--site", &order][..], more].concat())
    }

    fn id(&self, more: &[&str]) -> String {
        self.plan(more)["id"].as_str().expect("an id").to_owned()
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.site.path(name), "").expect("written");
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.site.path(name)).unwrap_or_default()
    }

    fn newest_run(&self) -> String {
        let list = self.server.json(&["run", "list"]);
        list[0]["id"].as_str().expect("an id").to_owned()
    }

    /// Starts the run, and waits until `db1` is running.
    fn start(&self) -> (Running, PathBuf) {
        let order = self.order();
        let mut command = bunraku();
        let address = self.server.address.to_string();
        command.args(["--server", &address]);
        command.arg("--credentials").arg(self.server.credentials());
        command.args(["run", "--site", &order, "--yes"]);
        let log = self.site.path("run.log");
        let running = Running::start(command, &log);
        eventually("db1 runs", || self.text("db") == "v1\n");
        (running, log)
    }
}

fn contains(output: &str, parts: &[&str]) {
    for part in parts {
        assert!(output.contains(part), "{part:?} is not in:\n{output}");
    }
}

#[test]
fn the_id_of_a_plan_covers_what_each_node_applies_and_how() {
    let fleet = Fleet::new();
    fleet.release("v1");
    let first = fleet.id(&[]);
    assert_eq!(fleet.id(&[]), first, "nothing changed");
    for more in [
        &["--noop"][..],
        &["--batch", "1"],
        &["--timeout", "5m"],
        &["--released"],
    ] {
        assert_ne!(fleet.id(more), first, "{more:?}");
    }
    // A held catalog is not part of the plan until it is released.
    fleet.deploy("v2");
    assert_eq!(fleet.id(&[]), first);
    let held = fleet.id(&["--held"]);
    assert_ne!(held, first);
    let order = fleet.order();
    let reviewed = fleet.path("reviewed.json");
    std::fs::write(&reviewed, fleet.plan(&[]).to_string()).expect("written");
    contains(
        &fleet.done(&["plan", "--site", &order]),
        &["the newest catalogs of 2 nodes are not released"],
    );
    fleet.done(&["release", "create", "production"]);
    fleet.done(&["release", "show", "production", "--wait"]);
    assert_eq!(
        fleet.id(&[]),
        held,
        "now it is what the plan with held catalogs said"
    );

    // What was approved is no longer what would run.
    let expected = ["run", "--site", &order, "--yes", "--expect-plan", &first];
    contains(&fleet.exits(4, &expected), &["the plan has changed"]);
    let expected = ["run", "--site", &order, "--yes", "--expect-plan", &reviewed];
    let changed = "web1: catalog ";
    contains(
        &fleet.exits(4, &expected),
        &["Differences from plan", changed],
    );
    let nothing = ["run", "--site", &order, "--yes", "--expect-plan", ""];
    contains(&fleet.exits(64, &nothing), &["neither a plan id"]);
    assert_eq!(fleet.text("web"), "");
    fleet.touch("go");
    fleet.done(&["run", "--site", &order, "--yes", "--expect-plan", &held]);
    assert_eq!(fleet.text("web"), "v2\n");
}

#[test]
fn a_plan_shows_what_would_change_on_each_node() {
    let fleet = Fleet::new();
    fleet.touch("go");
    fleet.release("v1");
    let order = fleet.order();
    let first = fleet.done(&["plan", "--site", &order]);
    contains(&first, &["of release 1", "first known run of db1, web1"]);
    fleet.done(&["run", "--site", &order, "--yes"]);
    contains(
        &fleet.done(&["plan", "--site", &order]),
        &["0 nodes with another catalog than before, 2 unchanged"],
    );
    fleet.release("v2");
    let changed = fleet.done(&["plan", "--site", &order]);
    contains(
        &changed,
        &[
            "Changes since the last run of each node:",
            &format!("~ File[{}]", fleet.path("web")),
            r#"- "v1\n""#,
            r#"+ "v2\n""#,
            "2 nodes with another catalog than before, 0 unchanged",
        ],
    );
    let plan = fleet.plan(&[]);
    assert_eq!(plan["changes"]["compared"], 2, "{plan}");
    assert_eq!(plan["steps"][0]["work"]["release"], 2, "{plan}");
}

#[test]
fn nodes_that_start_after_a_release_apply_what_their_run_planned() {
    let fleet = Fleet::new();
    fleet.release("v1");
    let (mut running, log) = fleet.start();
    fleet.release("v2");
    fleet.release("v3");
    fleet.touch("go");
    assert_eq!(
        running.wait(),
        Some(0),
        "{}",
        std::fs::read_to_string(log).unwrap_or_default()
    );
    assert_eq!(
        fleet.text("web"),
        "v1\n",
        "as planned, although v3 is released"
    );
    let reports = fleet.server.json(&["report", "list", "--node", "web1"]);
    assert_eq!(reports[0]["started"]["release"], 1, "{reports}");
    // Outside of a run, the target counts.
    fleet.done(&["node", "run", "web1", "--wait"]);
    assert_eq!(fleet.text("web"), "v3\n");
}

#[test]
fn nodes_that_start_after_a_rollback_do_not_apply_what_was_rolled_back() {
    let fleet = Fleet::new();
    fleet.release("v0");
    fleet.release("v1");
    let (mut running, log) = fleet.start();
    fleet.done(&["release", "rollback", "production", "--to", "1"]);
    fleet.done(&["release", "show", "production", "--wait"]);
    fleet.touch("go");
    assert_eq!(running.wait(), Some(3));
    let shown = fleet.exits(3, &["run", "show", &fleet.newest_run()]);
    contains(
        &shown,
        &["web1  never started: release 2 was rolled back by release 3"],
    );
    assert_eq!(fleet.text("web"), "", "{log:?}");
    // The plan cannot be completed any more, and a new one shows the difference first.
    let id = fleet.newest_run();
    contains(
        &fleet.exits(4, &["run", "resume", &id, "--yes"]),
        &["web1: release 2 was rolled back by release 3"],
    );
    let again = fleet.exits(4, &["run", "resume", &id, "--replan"]);
    contains(
        &again,
        &[
            "Differences from plan",
            "web1: catalog",
            "cannot ask for confirmation",
        ],
    );
    assert_eq!(fleet.text("web"), "");
    fleet.done(&["run", "resume", &id, "--replan", "--yes"]);
    assert_eq!(fleet.text("web"), "v0\n");
}

#[test]
fn resume_completes_the_plan_of_the_run_and_says_why_a_node_failed() {
    let fleet = Fleet::new();
    fleet.touch("go");
    fleet.touch("bad");
    fleet.release("v1");
    let order = fleet.order();
    let failed = fleet.exits(3, &["run", "--site", &order, "--yes"]);
    contains(&failed, &["web1 failed: Exec[", "the disk is full"]);
    let id = fleet.newest_run();
    contains(
        &fleet.exits(3, &["run", "show", &id]),
        &["the disk is full"],
    );

    fleet.release("v2");
    fleet.release("v3");
    std::fs::remove_file(fleet.site.path("bad")).expect("removed");
    // The order of another site does not matter: the plan is stored with the run.
    std::fs::write(fleet.site.path("site.yaml"), "applications: {}\n").expect("written");
    fleet.done(&["run", "resume", &id, "--yes"]);
    assert_eq!(
        fleet.text("web"),
        "v1\n",
        "that plan, although v3 is released"
    );

    // Once a node has applied a newer release, the old plan would take it back.
    std::fs::write(fleet.site.path("site.yaml"), ORDER).expect("written");
    fleet.done(&["run", "--site", &order, "--yes"]);
    assert_eq!(fleet.text("web"), "v3\n");
    contains(
        &fleet.exits(4, &["run", "resume", &id, "--yes"]),
        &["web1: it has applied release 3 since, and the plan says release 1"],
    );
    assert_eq!(fleet.text("web"), "v3\n");
}

#[test]
fn an_empty_site_is_an_empty_plan() {
    let fleet = Fleet::new();
    std::fs::write(fleet.site.path("site.yaml"), "applications: {}\n").expect("written");
    let order = fleet.order();
    contains(
        &fleet.done(&["plan", "--site", &order]),
        &["0 applications"],
    );
    assert_eq!(fleet.plan(&[])["steps"], serde_json::json!([]));
    contains(
        &fleet.done(&["run", "--site", &order, "--yes"]),
        &["nothing to run"],
    );
}
