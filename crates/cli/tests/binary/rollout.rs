//! Safe rollout and approvals, with real agents and two operators.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{
    ONE_GROUP, Running, ServerProcess, Site, all_output, bunraku, eventually, write_and_commit,
};

const ORDER: &str = "\
environment: production
applications:
  shop:
    components:
      web: {nodes: [web-1, web-2, web-3]}
";

/// A server with an environment, three agents that run a command, and a second operator.
struct Fleet {
    site: Site,
    server: ServerProcess,
    second: PathBuf,
    order: PathBuf,
    _agents: Vec<Running>,
}

impl Fleet {
    fn new() -> Self {
        let site = Site::new();
        let server = site.server("server", 0, &[]);
        let runs = site.path("runs");
        let mut agents = Vec::new();
        for node in ["web-1", "web-2", "web-3"] {
            let script = format!("echo {node} >> {}", runs.display());
            agents.push(site.script_agent(node, &server, &script));
        }
        let code = site.path("code");
        let all = "resources:\n  File[/etc/motd]: {content: one}\n";
        write_and_commit(&code, &[ONE_GROUP, ("all.yaml", all)]);
        let url = format!("file://{}", code.display());
        server.json(&[
            "environment",
            "add",
            "production",
            &url,
            "--policy",
            "manual",
        ]);
        let second = site.path("second");
        let issued = server.issue_operator("second", &second);
        assert!(issued.status.success(), "{}", all_output(&issued));
        let order = site.path("order.yaml");
        std::fs::write(&order, ORDER).expect("written");
        Self {
            site,
            server,
            second,
            order,
            _agents: agents,
        }
    }

    /// Starts a run in the background, with these options.
    fn start(&self, options: &[&str]) -> Child {
        let mut command = bunraku();
        command
            .args(["run", "--yes", "--site"])
            .arg(&self.order)
            .args(options);
        command.arg("--server").arg(self.server.address.to_string());
        command.arg("--credentials").arg(self.server.credentials());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    }

    fn second(&self, words: &[&str]) -> Output {
        let mut command: Command = bunraku();
        command
            .args(words)
            .arg("--server")
            .arg(self.server.address.to_string());
        command.arg("--credentials").arg(&self.second);
        command.output().expect("it runs")
    }

    fn ran(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.site.path("runs")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the newest run as JSON.
    fn newest(&self) -> serde_json::Value {
        let runs = self.server.json(&["run", "list"]);
        let id = runs[0]["id"].as_str().expect("a run").to_owned();
        // The exit code is that of the run.
        let shown = self.server.operator(&["run", "show", &id, "--json"]);
        serde_json::from_slice(&shown.stdout).expect("JSON")
    }

    /// Waits until the newest run waits for this.
    fn waits_for(&self, what: &str) -> String {
        eventually(what, || {
            let runs = self.server.json(&["run", "list"]);
            runs[0]["id"].is_string() && self.newest()["waits"][0]["waits_for"] == what
        });
        let id = self.newest()["record"]["id"].clone();
        id.as_str().expect("an id").to_owned()
    }
}

fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), all_output(&output))
}

#[test]
fn the_rest_waits_for_the_canary_its_soak_time_and_every_check() {
    let fleet = Fleet::new();
    let query = "query:nodes { status = \"lost\" }";
    let options = [
        "--canary", "1", "--soak", "1s", "--check", "manual", "--check", query,
    ];
    let child = fleet.start(&options);
    let id = fleet.waits_for("check");
    assert_eq!(fleet.ran(), ["web-1"]);
    let shown = all_output(&fleet.server.operator(&["run", "show", &id]));
    assert!(shown.contains("waiting for confirmation until"), "{shown}");
    let confirmed = fleet.second(&["run", "confirm", &id]);
    assert!(confirmed.status.success(), "{}", all_output(&confirmed));
    let (code, text) = ended(child);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("the check `manual` passed (second)"),
        "{text}"
    );
    assert_eq!(fleet.ran().len(), 3);
    let late = fleet.second(&["run", "confirm", &id]);
    assert_eq!(late.status.code(), Some(4), "{}", all_output(&late));
    // A command runs where `bunraku run` was started, and its failure stops the run.
    let marker = fleet.site.path("checked");
    let check = format!("command:echo $BUNRAKU_NODES > {}; exit 7", marker.display());
    let (code, text) = ended(fleet.start(&["--canary", "1", "--check", &check]));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("exit status: 7"), "{text}");
    assert_eq!(std::fs::read_to_string(marker).expect("written"), "web-1\n");
    assert_eq!(fleet.ran().len(), 4);
    // Nobody listens there.
    let url = format!("http://127.0.0.1:{}/", bunraku_store::testing::free_port());
    let options = ["--canary", "1", "--check", &url, "--check-timeout", "2s"];
    let (code, text) = ended(fleet.start(&options));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains(&format!("the check `{url}`")), "{text}");
    // A detached run has nobody who could execute a command.
    let (code, text) =
        ended(fleet.start(&["--canary", "1", "--check", "command:true", "--detach"]));
    assert_eq!(code, Some(64), "{text}");
    let (code, text) = ended(fleet.start(&["--check", "manual"]));
    assert_eq!(code, Some(64), "{text}");
}

#[test]
fn a_run_begins_only_when_someone_else_has_approved_its_plan() {
    let fleet = Fleet::new();
    let set = ["environment", "set", "production", "--approval", "runs"];
    let set = fleet.server.operator(&set);
    assert!(set.status.success(), "{}", all_output(&set));
    let child = fleet.start(&["--reason", "change 4711"]);
    let id = fleet.waits_for("approval");
    let own = fleet.server.operator(&["approval", "approve", &id]);
    assert!(!own.status.success(), "{}", all_output(&own));
    assert!(all_output(&own).contains("you cannot approve your own request"));
    let list = all_output(&fleet.second(&["approval", "list", "--pending"]));
    assert!(list.contains("change 4711"), "{list}");
    assert_eq!(fleet.ran().len(), 0);
    let approved = fleet.second(&["approval", "approve", &id, "--reason", "looks good"]);
    assert!(approved.status.success(), "{}", all_output(&approved));
    let (code, text) = ended(child);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("second approved the run"), "{text}");
    assert_eq!(fleet.ran().len(), 3);
    // The same plan is still approved; another one is not.
    let (code, text) = ended(fleet.start(&[]));
    assert_eq!(code, Some(0), "{text}");
    let child = fleet.start(&["--batch", "1"]);
    let id = fleet.waits_for("approval");
    let rejected = fleet.second(&["approval", "reject", &id, "--reason", "not today"]);
    assert!(rejected.status.success(), "{}", all_output(&rejected));
    let (code, text) = ended(child);
    assert_eq!(code, Some(4), "{text}");
    assert!(
        text.contains("second rejected the run: not today"),
        "{text}"
    );
    assert_eq!(fleet.ran().len(), 6);
    // The nodes decide, and not the environment that the site names.
    std::fs::write(&fleet.order, ORDER.replace("production", "elsewhere")).expect("written");
    let child = fleet.start(&["--batch", "2"]);
    let id = fleet.waits_for("approval");
    assert!(fleet.second(&["run", "cancel", &id]).status.success());
    let (code, text) = ended(child);
    assert_eq!(code, Some(3), "{text}");
    assert_eq!(fleet.ran().len(), 6);
    let options = ["--batch", "1", "--override-approval", "the shop is down"];
    let (code, text) = ended(fleet.start(&options));
    assert_eq!(code, Some(0), "{text}");
    let list = all_output(&fleet.second(&["approval", "list"]));
    assert!(list.contains("overridden"), "{list}");
    // A noop run changes nothing, so it needs no approval, but no command is configured for it.
    let (code, text) = ended(fleet.start(&["--noop"]));
    assert_eq!(code, Some(3), "{text}");
}

#[test]
fn an_approved_release_is_exactly_the_one_that_was_requested() {
    let fleet = Fleet::new();
    let deploy = ["environment", "deploy", "production", "--wait"];
    let deployed = fleet.server.operator(&deploy);
    assert!(deployed.status.success(), "{}", all_output(&deployed));
    let auto = [
        "environment",
        "set",
        "production",
        "--approval",
        "releases",
        "--policy",
        "auto",
    ];
    let auto = fleet.server.operator(&auto);
    assert!(!auto.status.success(), "{}", all_output(&auto));
    let set =
        fleet
            .server
            .operator(&["environment", "set", "production", "--approval", "releases"]);
    assert!(set.status.success(), "{}", all_output(&set));
    let pending = request(&fleet);
    let own = fleet.server.operator(&["approval", "approve", &pending]);
    assert!(!own.status.success(), "{}", all_output(&own));
    let approved = fleet.second(&["approval", "approve", &pending]);
    assert_eq!(approved.status.code(), Some(0), "{}", all_output(&approved));
    assert!(
        all_output(&approved).contains("release 1"),
        "{}",
        all_output(&approved)
    );
    let releases = fleet.server.json(&["release", "list", "production"]);
    let by = releases["releases"][0]["by"].as_str().expect("a name");
    assert!(by.ends_with(", approved by second"), "{by}");
    // Other code is compiled between the request and the approval.
    commit(&fleet.site.path("code"), "two");
    assert!(fleet.server.operator(&deploy).status.success());
    let pending = request(&fleet);
    commit(&fleet.site.path("code"), "three");
    assert!(fleet.server.operator(&deploy).status.success());
    let late = fleet.second(&["approval", "approve", &pending]);
    assert_eq!(late.status.code(), Some(4), "{}", all_output(&late));
    assert!(
        all_output(&late).contains("not be the one that was approved"),
        "{}",
        all_output(&late)
    );
    let urgent = [
        "release",
        "create",
        "production",
        "--override-approval",
        "the shop is down",
    ];
    let urgent = fleet.server.operator(&urgent);
    assert_eq!(urgent.status.code(), Some(0), "{}", all_output(&urgent));
}

/// Requests a release. Returns the id of the request.
fn request(fleet: &Fleet) -> String {
    let asked = fleet
        .server
        .operator(&["release", "create", "production", "--json"]);
    assert_eq!(asked.status.code(), Some(4), "{}", all_output(&asked));
    let reply: serde_json::Value = serde_json::from_slice(&asked.stdout).expect("JSON");
    reply["approval"]["id"].as_str().expect("an id").to_owned()
}

fn commit(code: &Path, content: &str) {
    let text = format!("resources:\n  File[/etc/motd]: {{content: {content}}}\n");
    write_and_commit(code, &[("all.yaml", &text)]);
}
