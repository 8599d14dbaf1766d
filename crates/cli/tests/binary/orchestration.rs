//! Ordered runs over many nodes, with real servers and agents.

use std::path::{Path, PathBuf};

use bunraku_store::testing::EtcdCluster;
use rustix::process::Signal;

use crate::fleet::copy;
use crate::support::{Running, ServerProcess, Site, bunraku, eventually, signal, told};

const LAMP: &str = "
applications:
  app1:
    components:
      db: {node: dev1, produces: [sql]}
      web: {nodes: [dev2, dev3, dev4], consumes: [sql]}
";

fn site_file(site: &Site, text: &str) -> PathBuf {
    let path = site.path("site.yaml");
    std::fs::write(&path, text).expect("written");
    path
}

/// Four agents whose runs write their name into one file, in the order of their end.
fn fleet(site: &Site, servers: &[&ServerProcess], script: &str) -> (Vec<Running>, PathBuf) {
    let order = site.path("order");
    std::fs::write(&order, "").expect("written");
    let config = site.path("agent.toml");
    std::fs::write(&config, "[agent]\nrun_noop_command = [\"true\"]\n").expect("written");
    let agents = ["dev1", "dev2", "dev3", "dev4"].map(|node| {
        let script = script
            .replace("NODE", node)
            .replace("SITE", &site.path("").display().to_string());
        let script = format!(
            "{script} && echo {node} >> {0} && echo {node} $BUNRAKU_RUN $BUNRAKU_CAUSES >> {0}.runs",
            order.display()
        );
        let flags = [
            "--config",
            config.to_str().expect("text"),
            "--run-method",
            "command",
            "--run-command",
            &script,
            // No runs of its own: whatever runs twice was asked for twice.
            "--run-interval",
            "0s",
        ];
        site.agent_with(node, servers, true, &flags)
    });
    for node in ["dev1", "dev2", "dev3", "dev4"] {
        servers[0].wait_for(node, "idle");
    }
    (agents.into(), order)
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("readable");
    text.lines().map(str::to_owned).collect()
}

fn run<'a>(path: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--site", path, "--configured", "--yes"], more].concat()
}

fn steps(run: &serde_json::Value) -> Vec<(String, String)> {
    let steps = run["steps"].as_array().expect("steps");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    steps
        .iter()
        .map(|step| (text(&step["node"]), text(&step["status"]["state"])))
        .collect()
}

#[test]
fn the_database_runs_before_the_web_servers_and_everything_is_told() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let (_agents, order) = fleet(&site, &[&server], "sleep 0.2");
    let path = site_file(&site, LAMP);
    let path = path.to_str().expect("text");

    let unsure = server.operator(&["run", "--site", path, "--configured"]);
    assert_eq!(unsure.status.code(), Some(4), "{}", told(&unsure));
    assert!(
        told(&unsure).contains("nobody is there to confirm"),
        "{}",
        told(&unsure)
    );
    assert!(lines(&order).is_empty(), "nothing runs unasked");

    let done = server.operator(&run(path, &["--reason", "a test"]));
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    let finished = lines(&order);
    assert_eq!(finished.len(), 4, "each ran once: {finished:?}");
    assert_eq!(finished[0], "dev1");
    for part in [
        "all 4 nodes are connected and enabled",
        "dev1 is asked to run",
        "dev1 succeeded",
        "4 of 4 done",
        "  ✓ dev4  succeeded",
    ] {
        assert!(told(&done).contains(part), "{part}: {}", told(&done));
    }

    let list = server.json(&["run", "list"]);
    assert_eq!(list[0]["reason"], "a test");
    assert_eq!(list[0]["end"]["outcome"], "succeeded");
    let id = list[0]["id"].as_str().expect("an id");
    let timeline = server.operator(&["run", "show", id, "--timeline"]);
    assert!(told(&timeline).contains("* dev1"), "{}", told(&timeline));
    let svg = server.operator(&["run", "show", id, "--svg"]);
    assert!(told(&svg).contains("<svg"), "{}", told(&svg));
    let watched = server.operator(&["run", "watch", &id[id.len() - 8..]]);
    assert_eq!(watched.status.code(), Some(0), "{}", told(&watched));

    let noop = server.operator(&run(path, &["--noop"]));
    assert_eq!(noop.status.code(), Some(0), "{}", told(&noop));
    assert_eq!(lines(&order).len(), 4, "noop changes nothing");
}

#[test]
fn a_failure_skips_what_waits_for_it_and_resume_does_what_is_left() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let (_agents, order) = fleet(&site, &[&server], "test ! -e SITEbad-NODE");
    let path = site_file(&site, LAMP);
    let path = path.to_str().expect("text");
    std::fs::write(site.path("bad-dev1"), "").expect("written");

    let bad = server.operator(&run(path, &[]));
    assert_eq!(bad.status.code(), Some(3), "{}", told(&bad));
    for part in [
        "✗ dev1  failed",
        "- dev2  skipped: waits for dev1, which failed",
        "bunraku run resume",
    ] {
        assert!(told(&bad).contains(part), "{part}: {}", told(&bad));
    }
    assert!(lines(&order).is_empty());
    let list = server.json(&["run", "list"]);
    let id = list[0]["id"].as_str().expect("an id").to_owned();

    std::fs::remove_file(site.path("bad-dev1")).expect("removed");
    std::fs::write(site.path("bad-dev3"), "").expect("written");
    let half = server.operator(&["run", "resume", &id, "--yes"]);
    assert_eq!(half.status.code(), Some(3), "{}", told(&half));
    assert!(lines(&order).contains(&"dev1".to_owned()));
    let list = server.json(&["run", "list"]);
    let second = list[0]["id"].as_str().expect("an id").to_owned();

    std::fs::remove_file(site.path("bad-dev3")).expect("removed");
    let rest = server.operator(&["run", "resume", &second, "--yes"]);
    assert_eq!(rest.status.code(), Some(0), "{}", told(&rest));
    let finished = lines(&order);
    assert_eq!(
        finished.iter().filter(|line| *line == "dev1").count(),
        1,
        "what succeeded is not done again: {finished:?}"
    );

    std::fs::write(path, LAMP.replace("dev4", "dev2")).expect("written");
    let stale = server.operator(&["run", "resume", &id, "--yes"]);
    assert_eq!(stale.status.code(), Some(4), "{}", told(&stale));
    assert!(
        told(&stale).contains("its inputs changed"),
        "{}",
        told(&stale)
    );
}

#[test]
fn nodes_that_are_disabled_or_unknown_keep_everything_from_starting() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let (_agents, order) = fleet(&site, &[&server], "true");
    server.operator(&["node", "disable", "dev3", "--reason", "disk"]);
    let path = site_file(&site, &LAMP.replace("dev4", "dev9"));
    let path = path.to_str().expect("text");
    let refused = server.operator(&run(path, &[]));
    assert_eq!(refused.status.code(), Some(3), "{}", told(&refused));
    for part in [
        "warning: dev3 is disabled by operator.server.test: disk",
        "warning: dev9 is unknown",
        "✗ dev3  disabled",
        "✗ dev9  lost: no such node ever joined",
        "- dev1  skipped: not every node is ready",
    ] {
        assert!(told(&refused).contains(part), "{part}: {}", told(&refused));
    }
    assert!(lines(&order).is_empty());
}

#[test]
fn control_c_once_lets_running_nodes_finish_and_twice_ends_them() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let script = "touch SITEat-NODE; while [ ! -e SITEgo-NODE ]; do sleep 0.05; done";
    let (_agents, order) = fleet(&site, &[&server], script);
    let path = site_file(&site, LAMP);
    let start = || {
        let mut command = bunraku();
        command.args(run(path.to_str().expect("text"), &[]));
        command.arg("--server").arg(server.address.to_string());
        command.arg("--credentials").arg(server.credentials());
        command.stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        command.spawn().expect("it starts")
    };
    let at = site.path("at-dev1");
    let once = start();
    eventually("dev1 is at work", || at.exists());
    let other = server.operator(&["node", "run", "dev4", "--configured"]);
    assert_eq!(other.status.code(), Some(4), "{}", told(&other));
    assert!(
        told(&other).contains("has `dev4` for itself"),
        "{}",
        told(&other)
    );
    signal(&once, Signal::INT);
    eventually("the request is known", || {
        server.json(&["run", "list"])[0]["id"]
            .as_str()
            .is_some_and(|id| {
                let shown = server.operator(&["run", "show", id]);
                told(&shown).contains("stopping")
            })
    });
    std::fs::write(site.path("go-dev1"), "").expect("written");
    let output = once.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(
        told(&output).contains("✓ dev1  succeeded"),
        "{}",
        told(&output)
    );
    assert_eq!(lines(&order), ["dev1"]);

    std::fs::remove_file(site.path("go-dev1")).expect("removed");
    std::fs::remove_file(&at).expect("removed");
    let twice = start();
    eventually("dev1 is at work again", || at.exists());
    signal(&twice, Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(&twice, Signal::INT);
    let output = twice.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(
        told(&output).contains("dev1  cancelled"),
        "{}",
        told(&output)
    );
    assert_eq!(lines(&order), ["dev1"], "the second run ended nowhere");
}

#[test]
fn runs_that_share_nodes_queue_in_the_order_of_their_creation() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let (_agents, order) = fleet(&site, &[&server], "sleep 0.2");
    let path = site_file(&site, LAMP);
    let path = path.to_str().expect("text");
    for _ in 0..3 {
        let taken = server.operator(&run(path, &["--detach"]));
        assert_eq!(taken.status.code(), Some(0), "{}", told(&taken));
    }
    eventually("all three are over", || {
        let runs = server.json(&["run", "list"]);
        let runs = runs.as_array().expect("runs").clone();
        runs.len() == 3 && runs.iter().all(|run| run["end"]["outcome"] == "succeeded")
    });
    let finished = lines(&order);
    assert_eq!(finished.len(), 12);
    for chunk in finished.chunks(4) {
        assert_eq!(chunk[0], "dev1", "one run after the other: {finished:?}");
    }
}

#[test]
fn another_server_takes_over_a_run_whose_leader_is_killed() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let etcd = runtime.block_on(EtcdCluster::start(1));
    let endpoint = etcd.endpoints()[0].clone();
    let site = Site::new();
    let first = site.server("first", 0, &["--etcd", &endpoint]);
    // The second one shares the authority, as a cluster will.
    copy(&site.path("first/ca"), &site.path("second/ca"));
    let second = site.server("second", 0, &["--etcd", &endpoint]);
    let script = "touch SITEat-NODE; while [ ! -e SITEgo ]; do sleep 0.05; done";
    let (_agents, order) = fleet(&site, &[&second, &first], script);
    let path = site_file(&site, LAMP);
    let taken = second.operator(&run(path.to_str().expect("text"), &["--detach"]));
    assert_eq!(taken.status.code(), Some(0), "{}", told(&taken));
    let id = String::from_utf8_lossy(&taken.stdout).trim().to_owned();
    eventually("dev1 is at work", || site.path("at-dev1").exists());
    let leads = |server: &ServerProcess| server.running.log().contains("this server leads the run");
    eventually("one of them leads", || leads(&first) || leads(&second));
    assert!(!(leads(&first) && leads(&second)), "one leads, not both");
    let (leader, second) = match leads(&first) {
        true => (first, second),
        false => (second, first),
    };
    leader.running.kill();
    std::fs::write(site.path("go"), "").expect("written");
    let watched = second.operator(&["run", "watch", &id]);
    assert_eq!(watched.status.code(), Some(0), "{}", told(&watched));
    let finished = lines(&order);
    assert_eq!(
        finished.len(),
        4,
        "nothing ran twice, nothing was forgotten: {:#?}",
        lines(&site.path("order.runs"))
    );
    assert_eq!(finished[0], "dev1");
    assert!(leads(&second), "the other one took over");
    let shown = second.json(&["run", "show", &id]);
    assert!(
        steps(&shown).iter().all(|(_, state)| state == "succeeded"),
        "{shown}"
    );
}
