//! Three people with different rights, on a cluster whose leader dies: who may release, who may
//! approve, what the audit log says about it, and a plan that a release made invalid.

use std::process::Output;

use serde_json::Value;

use crate::cluster_support::{Cluster, healthy, status};
use crate::support::{
    Running, ServerProcess, all_output, bunraku, ended, eventually, run, shows, write_and_commit,
};

const ORDER: &str = "applications:
  shop:
    components:
      db: {node: db1}
";

/// Four servers with three datastores, and an agent.
struct Fleet {
    cluster: Cluster,
    servers: Vec<ServerProcess>,
    _agent: Running,
}

impl Fleet {
    fn new() -> Self {
        let cluster = Cluster::new();
        cluster.configure("grace = \"1s\"\n");
        let made = cluster.set_up(1, &["init", "--datastores=3"]);
        assert!(made.status.success(), "{}", all_output(&made));
        let mut servers = vec![cluster.server(1)];
        for number in 2..=4 {
            let next = cluster.join(&servers[0], number);
            servers.push(next);
        }
        eventually("the data is on three", || {
            status(&servers[0]).is_some_and(|status| healthy(&status) == 3)
        });
        let all: Vec<&ServerProcess> = servers.iter().collect();
        let flags = ["--run-interval", "0s"];
        let agent = cluster.site.agent_with("db1", &all, true, &flags);
        servers[0].wait_for_facts("db1");
        std::fs::write(cluster.site.path("site.yaml"), ORDER).expect("written");
        Self {
            cluster,
            servers,
            _agent: agent,
        }
    }

    fn path(&self, name: &str) -> String {
        self.cluster.site.path(name).display().to_string()
    }

    /// Runs a command as an administrator.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.servers[0].operator(arguments);
        ended(&output, 0);
        String::from_utf8(output.stdout).expect("text")
    }

    /// Creates an operator who has the rights of a group.
    fn hire(&self, name: &str, rights: &str) {
        let (out, group) = (self.path(name), format!("group:{name}s"));
        let issue = ["cert", "issue", name, "--role", "operator", "--out", &out];
        self.done(&[&issue[..], &["--group", &format!("{name}s")]].concat());
        self.done(&[
            "access",
            "grant",
            &group,
            rights,
            "--environment=production",
        ]);
    }

    /// Runs a command with a person's certificate, on any server that answers.
    fn by(&self, name: &str, arguments: &[&str]) -> Output {
        let addresses: Vec<String> = (self.servers.iter())
            .map(|server| server.address.to_string())
            .collect();
        let mut command = bunraku();
        command
            .args(arguments)
            .args(["--server", &addresses.join(",")]);
        command.args(["--credentials", &self.path(name)]);
        command.output().expect("it runs")
    }

    fn deploy(&self, version: &str) {
        let code = self.cluster.site.path("code");
        let is_first = !code.exists();
        if is_first {
            std::fs::create_dir(&code).expect("made");
            run(&code, "git", &["init", "--quiet", "--initial-branch=main"]);
        }
        let state = format!(
            "{}:\n  file.managed:\n    - contents: {version}\n",
            self.path("page")
        );
        let top = "base:\n  'db1': [page]\n";
        write_and_commit(&code, &[("top.sls", top), ("page.sls", &state)]);
        if is_first {
            let url = format!("file://{}", code.display());
            self.done(&["environment", "add", "production", &url]);
        }
        self.done(&["environment", "deploy", "production", "--wait"]);
    }

    /// One requests a release, and another one approves it.
    fn release(&self) {
        let requested = self.by("requester", &["release", "create", "production", "--json"]);
        ended(&requested, 4);
        let reply: Value = serde_json::from_slice(&requested.stdout).expect("JSON");
        let id = reply["approval"]["id"].as_str().expect("an id").to_owned();
        for name in ["requester", "viewer"] {
            let refused = self.by(name, &["approval", "approve", &id]);
            ended(&refused, 4);
        }
        ended(&self.by("approver", &["approval", "approve", &id]), 0);
        self.done(&["release", "show", "production", "--wait"]);
    }
}

/// Returns `WHO ACTION OUTCOME` of all records that match.
fn records(server: &ServerProcess, filter: &[&str]) -> Vec<String> {
    let list = [&["audit", "list", "--limit=500"], filter].concat();
    let records = server.json(&list);
    let word = |record: &Value, name: &str| record[name].as_str().unwrap_or("-").to_owned();
    let mut lines: Vec<String> = (records.as_array().expect("a list").iter())
        .map(|record| {
            let parts = ["who", "action", "outcome"].map(|name| word(record, name));
            parts.join(" ")
        })
        .collect();
    lines.sort();
    lines
}

fn newest(server: &ServerProcess) -> String {
    let verified = server.json(&["audit", "verify"]);
    let hash = verified["hash"].as_str().expect("a hash");
    format!("{}:{hash}", verified["last"])
}

#[test]
fn one_requests_another_approves_a_third_sees_and_the_log_knows_after_the_leader_died() {
    let mut fleet = Fleet::new();
    fleet.deploy("v1");
    fleet.done(&["environment", "set", "production", "--approval", "releases"]);
    fleet.hire("requester", "releaser");
    fleet.hire("approver", "view,approve");
    fleet.hire("viewer", "viewer");
    let looks = fleet.by("viewer", &["release", "list", "production"]);
    ended(&looks, 0);
    ended(&fleet.by("viewer", &["release", "create", "production"]), 4);
    ended(
        &fleet.by("approver", &["release", "create", "production"]),
        4,
    );
    fleet.release();

    // A plan of release 1 is refused after release 2.
    let site = fleet.path("site.yaml");
    let plan = fleet.by("requester", &["plan", "--site", &site, "--json"]);
    ended(&plan, 0);
    let reviewed = fleet.path("reviewed.json");
    std::fs::write(&reviewed, &plan.stdout).expect("written");
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let id = plan["id"].as_str().expect("an id");
    fleet.deploy("v2");
    fleet.release();
    for expected in [id, &reviewed] {
        let run = ["run", "--site", &site, "--yes", "--expect-plan", expected];
        let stale = fleet.by("requester", &run);
        ended(&stale, 4);
        shows(&stale, "the plan has changed");
        if expected == reviewed {
            shows(&stale, "db1: catalog");
        }
    }
    assert!(!fleet.cluster.site.path("page").exists(), "nothing ran");

    let anchor = newest(&fleet.servers[0]);
    let elected = status(&fleet.servers[0]).expect("a status")["leader"].clone();
    let elected = elected.as_str().expect("a leader").trim_start_matches('s');
    let number: usize = elected.parse().expect("a number");
    fleet.servers.remove(number - 1).running.kill();
    let server = &fleet.servers[0];
    eventually("the datastore is replaced", || {
        let steps = server.operator(&["audit", "list", "--action=complete-datastore-change"]);
        String::from_utf8_lossy(&steps.stdout).contains("its server is dead")
    });
    let verified = server.operator(&["audit", "verify", "--anchor", &anchor]);
    ended(&verified, 0);

    let own = ["requester", "approver", "viewer"].map(|who| records(server, &["--who", who]));
    let lines = own.concat();
    assert_eq!(
        lines,
        [
            "requester create-release succeeded",
            "requester create-release succeeded",
            "requester decide-approval refused",
            "requester decide-approval refused",
            "approver create-release refused",
            "approver decide-approval succeeded",
            "approver decide-approval succeeded",
            "viewer create-release refused",
            "viewer decide-approval refused",
            "viewer decide-approval refused",
        ]
    );
    let made = records(server, &["--action", "create-approved-release"]);
    let line = "requester, approved by approver create-approved-release succeeded";
    assert_eq!(made, [line, line]);
    // What the servers did on their own.
    let steps = records(server, &["--action", "*-datastore*"]);
    for step in [
        "begin-datastore-change",
        "remove-datastore",
        "promote-datastore",
    ] {
        let found = steps.iter().filter(|line| line.contains(step));
        assert!(found.count() > 0, "{step}: {steps:#?}");
    }
}
