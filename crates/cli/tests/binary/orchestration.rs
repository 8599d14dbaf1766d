//! Ordered runs over many nodes, with real servers and agents.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::fleet::two_servers;
use crate::support::{LAMP, Running, ServerProcess, Site, all_output, bunraku, eventually, signal};

const NODES: [&str; 4] = ["dev1", "dev2", "dev3", "dev4"];

fn site_file(site: &Site, text: &str) -> PathBuf {
    let path = site.path("site.yaml");
    std::fs::write(&path, text).expect("written");
    path
}

/// Starts four agents whose runs write their name into one file, in the order of their end.
fn fleet(site: &Site, servers: &[&ServerProcess], script: &str) -> (Vec<Running>, PathBuf) {
    // The agents have no scheduled runs: a run that happens twice was requested twice.
    fleet_with(site, servers, script, "0s")
}

/// Starts the same fleet with scheduled runs.
fn fleet_with(
    site: &Site,
    servers: &[&ServerProcess],
    script: &str,
    interval: &str,
) -> (Vec<Running>, PathBuf) {
    let order = site.path("order");
    std::fs::write(&order, "").expect("written");
    let config = site.path("agent.toml");
    std::fs::write(&config, "[agent]\nrun_noop_command = [\"true\"]\n").expect("written");
    let agents = NODES.map(|node| worker(site, servers, node, script, interval));
    for node in NODES {
        servers[0].wait_for(node, "idle");
    }
    (agents.into(), order)
}

/// Starts one agent of such a fleet.
fn worker(
    site: &Site,
    servers: &[&ServerProcess],
    node: &str,
    script: &str,
    interval: &str,
) -> Running {
    let script = script
        .replace("NODE", node)
        .replace("SITE", &site.path("").display().to_string());
    let script = format!(
        "{script} && echo {node} >> {0} && echo {node} $BUNRAKU_RUN $BUNRAKU_CAUSES >> {0}.runs",
        site.path("order").display()
    );
    let config = site.path("agent.toml");
    let flags = [
        "--config",
        config.to_str().expect("text"),
        "--run-method",
        "command",
        "--run-command",
        &script,
        "--run-interval",
        interval,
    ];
    site.agent_with(node, servers, true, &flags)
}

/// Returns the lines of a file; none if it does not exist yet.
fn lines(path: &Path) -> Vec<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => text.lines().map(str::to_owned).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    }
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
fn the_database_runs_before_the_web_servers_and_everything_is_reported() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let (_agents, order) = fleet(&site, &[&server], "sleep 0.2");
    let path = site_file(&site, LAMP);
    let path = path.to_str().expect("text");

    let unsure = server.operator(&["run", "--site", path, "--configured"]);
    assert_eq!(unsure.status.code(), Some(4), "{}", all_output(&unsure));
    assert!(
        all_output(&unsure).contains("cannot ask for confirmation"),
        "{}",
        all_output(&unsure)
    );
    assert!(lines(&order).is_empty(), "nothing runs unasked");

    let done = server.operator(&run(path, &["--reason", "a test"]));
    assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    let finished = lines(&order);
    assert_eq!(finished.len(), 4, "each ran once: {finished:?}");
    assert_eq!(finished[0], "dev1");
    for part in [
        "all 4 nodes are connected and enabled",
        "dev1 is starting",
        "dev1 succeeded",
        "4 of 4 done",
        "  ✓ dev4  succeeded",
    ] {
        assert!(
            all_output(&done).contains(part),
            "{part}: {}",
            all_output(&done)
        );
    }

    let list = server.json(&["run", "list"]);
    assert_eq!(list[0]["reason"], "a test");
    assert_eq!(list[0]["end"]["outcome"], "succeeded");
    let id = list[0]["id"].as_str().expect("an id");
    let timeline = server.operator(&["run", "show", id, "--timeline"]);
    assert!(
        all_output(&timeline).contains("* dev1"),
        "{}",
        all_output(&timeline)
    );
    let svg = server.operator(&["run", "show", id, "--svg"]);
    assert!(all_output(&svg).contains("<svg"), "{}", all_output(&svg));
    let watched = server.operator(&["run", "watch", &id[id.len() - 8..]]);
    assert_eq!(watched.status.code(), Some(0), "{}", all_output(&watched));

    let noop = server.operator(&run(path, &["--noop"]));
    assert_eq!(noop.status.code(), Some(0), "{}", all_output(&noop));
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
    assert_eq!(bad.status.code(), Some(3), "{}", all_output(&bad));
    for part in [
        "✗ dev1  failed",
        "- dev2  skipped: waits for dev1, which failed",
        "bunraku run resume",
    ] {
        assert!(
            all_output(&bad).contains(part),
            "{part}: {}",
            all_output(&bad)
        );
    }
    assert!(lines(&order).is_empty());
    let list = server.json(&["run", "list"]);
    let id = list[0]["id"].as_str().expect("an id").to_owned();

    std::fs::remove_file(site.path("bad-dev1")).expect("removed");
    std::fs::write(site.path("bad-dev3"), "").expect("written");
    let half = server.operator(&["run", "resume", &id, "--yes"]);
    assert_eq!(half.status.code(), Some(3), "{}", all_output(&half));
    assert!(lines(&order).contains(&"dev1".to_owned()));
    let list = server.json(&["run", "list"]);
    let second = list[0]["id"].as_str().expect("an id").to_owned();

    std::fs::remove_file(site.path("bad-dev3")).expect("removed");
    let rest = server.operator(&["run", "resume", &second, "--yes"]);
    assert_eq!(rest.status.code(), Some(0), "{}", all_output(&rest));
    let finished = lines(&order);
    assert_eq!(
        finished.iter().filter(|line| *line == "dev1").count(),
        1,
        "what succeeded is not done again: {finished:?}"
    );

    // Nothing is left of the run that succeeded.
    let runs = server.json(&["run", "list"]);
    let done = runs[0]["id"].as_str().expect("an id").to_owned();
    let again = server.operator(&["run", "resume", &done, "--yes"]);
    let shown = all_output(&again);
    assert_eq!(again.status.code(), Some(4), "{shown}");
    assert!(shown.contains("nothing is left to run"), "{shown}");
    assert_eq!(lines(&order), finished, "nothing ran");

    // With another site, the difference is shown before anything runs.
    std::fs::write(path, LAMP.replace("dev4", "dev2")).expect("written");
    let other = server.operator(&["run", "resume", &id, "--replan"]);
    assert_eq!(other.status.code(), Some(4), "{}", all_output(&other));
    let difference = "dev4: no longer in the plan";
    assert!(
        all_output(&other).contains(difference),
        "{}",
        all_output(&other)
    );
    assert_eq!(lines(&order), finished, "nothing ran");
}

#[test]
fn queries_choose_nodes_on_the_server_and_from_a_file_of_facts() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let (_agents, order) = fleet(&site, &[&server], "true");
    eventually("the index knows the nodes", || {
        let found = server.json(&["query", "nodes"]);
        found.as_array().is_some_and(|found| found.len() == 4)
    });
    let path = site_file(
        &site,
        "
applications:
  app1:
    components:
      db: {node: dev1, produces: [sql]}
      web: {query: 'nodes { certname in [\"dev2\", \"dev3\"] }', consumes: [sql]}
",
    );
    let path = path.to_str().expect("text");
    let plan = server.json(&["plan", "--site", path]);
    assert_eq!(
        plan["groups"],
        serde_json::json!([["dev1"], ["dev2", "dev3"]])
    );

    let filter = r#"nodes { certname ~ "dev[13]" and not facts.kernel is null }"#;
    eventually("facts are in the index", || {
        let found = server.json(&["query", filter]);
        found.as_array().is_some_and(|found| found.len() == 2)
    });
    let done = server.operator(&run(path, &["--query", filter]));
    assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    let left_out = "warning: app1 is only partly planned; not included: app1/web on dev2";
    assert!(
        all_output(&done).contains(left_out),
        "{}",
        all_output(&done)
    );
    assert_eq!(lines(&order), ["dev1", "dev3"]);

    let offline = |more: &[&str]| {
        let arguments = ["plan", "--offline", "--json", "--site", path];
        let mut command = bunraku();
        let output = command.args(arguments).args(more).output();
        output.expect("it runs")
    };
    let unknown = offline(&[]);
    assert_eq!(unknown.status.code(), Some(1), "{}", all_output(&unknown));
    let asks = "needs the nodes from a server";
    assert!(
        all_output(&unknown).contains(asks),
        "{}",
        all_output(&unknown)
    );

    let facts = server.operator(&["query", "--json", "nodes[certname, facts]"]);
    let file = site.path("facts.json");
    std::fs::write(&file, &facts.stdout).expect("written");
    let file = file.to_str().expect("text");
    let known = offline(&["--facts", file]);
    assert_eq!(known.status.code(), Some(0), "{}", all_output(&known));
    let known: serde_json::Value = serde_json::from_slice(&known.stdout).expect("JSON");
    assert_eq!(
        known["groups"], plan["groups"],
        "the same order as the server's"
    );
    let part = offline(&["--facts", file, "--query", filter]);
    assert!(
        all_output(&part).contains(left_out),
        "{}",
        all_output(&part)
    );

    // The answer to a query is part of the plan: with another answer, it is another plan.
    let id = plan["id"].as_str().expect("an id");
    let fewer = std::fs::read_to_string(path)
        .expect("readable")
        .replace("dev3", "dev4");
    std::fs::write(path, fewer).expect("written");
    let stale = server.operator(&run(path, &["--expect-plan", id]));
    assert_eq!(stale.status.code(), Some(4), "{}", all_output(&stale));

    std::fs::write(path, LAMP).expect("written");
    let nobody = offline(&["--query", filter]);
    assert_eq!(nobody.status.code(), Some(64), "{}", all_output(&nobody));
    assert!(
        all_output(&nobody).contains("pass the output of"),
        "{}",
        all_output(&nobody)
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
    assert_eq!(refused.status.code(), Some(4), "{}", all_output(&refused));
    for part in [
        "warning: dev3 is disabled by operator.server.test: disk",
        "warning: dev9 is unknown",
        "✗ dev3  disabled",
        "✗ dev9  lost: no node with this name has joined",
        "- dev1  skipped: not all nodes are ready",
    ] {
        assert!(
            all_output(&refused).contains(part),
            "{part}: {}",
            all_output(&refused)
        );
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
    let is_stopping = || {
        eventually("the request is known", || {
            let newest = server.json(&["run", "list"])[0]["id"].clone();
            let shown = |id: &str| all_output(&server.operator(&["run", "show", id]));
            newest
                .as_str()
                .is_some_and(|id| shown(id).contains("stopping"))
        });
    };
    let at = site.path("at-dev1");
    let once = start();
    eventually("dev1 is running", || at.exists());
    let other = server.operator(&["node", "run", "dev4", "--configured"]);
    assert_eq!(other.status.code(), Some(4), "{}", all_output(&other));
    assert!(
        all_output(&other).contains("holds `dev4`"),
        "{}",
        all_output(&other)
    );
    signal(&once, Signal::INT);
    is_stopping();
    std::fs::write(site.path("go-dev1"), "").expect("written");
    let output = once.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{}", all_output(&output));
    assert!(
        all_output(&output).contains("✓ dev1  succeeded"),
        "{}",
        all_output(&output)
    );
    assert_eq!(lines(&order), ["dev1"]);

    std::fs::remove_file(site.path("go-dev1")).expect("removed");
    std::fs::remove_file(&at).expect("removed");
    let twice = start();
    eventually("dev1 is running again", || at.exists());
    signal(&twice, Signal::INT);
    is_stopping();
    signal(&twice, Signal::INT);
    let output = twice.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{}", all_output(&output));
    assert!(
        all_output(&output).contains("dev1  cancelled"),
        "{}",
        all_output(&output)
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
        assert_eq!(taken.status.code(), Some(0), "{}", all_output(&taken));
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
    let site = Site::new();
    let (_etcd, first, second) = two_servers(&site);
    // Each node runs every second on its own schedule, unless an ordered run has reserved it.
    let script = "case \"$BUNRAKU_CAUSES\" in *schedule*) ;; *) \
        touch SITEat-NODE; while [ ! -e SITEgo ]; do sleep 0.05; done;; esac";
    let servers = [&second, &first];
    let (_agents, _) = fleet_with(&site, &servers, script, "1s");
    // No ordered run includes this node.
    let _free = worker(&site, &servers, "free", script, "1s");
    let ran = |node: &str, cause: &str| {
        let all = lines(&site.path("order.runs"));
        let of = |line: &&String| line.starts_with(node) && line.contains(cause);
        all.iter().filter(of).count()
    };
    eventually("they run by themselves", || {
        NODES.iter().all(|node| ran(node, "schedule") > 0)
    });
    let path = site_file(&site, LAMP);
    let taken = second.operator(&run(path.to_str().expect("text"), &["--detach"]));
    assert_eq!(taken.status.code(), Some(0), "{}", all_output(&taken));
    let id = String::from_utf8_lossy(&taken.stdout).trim().to_owned();
    eventually("dev1 is running", || site.path("at-dev1").exists());
    eventually("the others are held and do nothing", || {
        NODES[1..].iter().all(|node| {
            let queue = second.json(&["node", "queue", node]);
            queue["held_by"] == id.as_str() && queue["running"].is_null()
        })
    });
    let before: usize = NODES.iter().map(|node| ran(node, "schedule")).sum();
    let leads = |server: &ServerProcess| server.running.log().contains("this server leads the run");
    eventually("one of them leads", || leads(&first) || leads(&second));
    assert!(!(leads(&first) && leads(&second)), "one leads, not both");
    let (leader, second) = if leads(&first) {
        (first, second)
    } else {
        (second, first)
    };
    leader.running.kill();
    eventually("the other one takes over", || leads(&second));
    // This takes several times their own interval, through the takeover and after it.
    let free = ran("free", "schedule");
    eventually("a node that is not held goes on", || {
        ran("free", "schedule") > free + 3
    });
    let after: usize = NODES.iter().map(|node| ran(node, "schedule")).sum();
    assert_eq!(after, before, "no node runs automatically while it is held");
    std::fs::write(site.path("go"), "").expect("written");
    let watched = second.operator(&["run", "watch", &id]);
    assert_eq!(watched.status.code(), Some(0), "{}", all_output(&watched));
    let all = lines(&site.path("order.runs"));
    for node in NODES {
        assert_eq!(ran(node, &id), 1, "once, and not forgotten: {all:#?}");
    }
    let ordered: Vec<&String> = all.iter().filter(|line| line.contains(&id)).collect();
    assert!(ordered[0].starts_with("dev1"), "{ordered:#?}");
    eventually("they run by themselves again", || {
        NODES
            .iter()
            .map(|node| ran(node, "schedule"))
            .sum::<usize>()
            >= before + 4
    });
    let shown = second.json(&["run", "show", &id]);
    assert!(
        steps(&shown).iter().all(|(_, state)| state == "succeeded"),
        "{shown}"
    );
}

#[test]
fn a_run_for_later_survives_the_server_can_be_cancelled_fires_its_trigger_or_expires() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let port = server.address.port();
    let (_agents, order) = fleet(&site, &[&server], "true");
    let path = site_file(&site, LAMP);
    let path = path.to_str().expect("text");
    let asked = |server: &ServerProcess, more: &[&str]| {
        let taken = server.operator(&run(path, more));
        assert_eq!(taken.status.code(), Some(0), "{}", all_output(&taken));
        String::from_utf8_lossy(&taken.stdout).trim().to_owned()
    };
    let outcome = |server: &ServerProcess, id: &str| {
        // A run that did not succeed is shown with exit code 3.
        let shown = server.operator(&["run", "show", id, "--json"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        shown["phase"]["outcome"].as_str().map(str::to_owned)
    };

    let command = server.operator(&run(path, &["--at", "+1h", "--on-success", "true"]));
    assert_eq!(command.status.code(), Some(64), "{}", all_output(&command));

    let tomorrow = asked(&server, &["--at", "+1h"]);
    let list = all_output(&server.operator(&["run", "list"]));
    assert!(list.contains("scheduled for"), "{list}");
    // It blocks no other run.
    let window = "mon-sun 00:00-24:00 UTC";
    let open = asked(&server, &["--in-window", window]);
    eventually("a window that is open is now", || {
        outcome(&server, &open).as_deref() == Some("succeeded")
    });
    let hook = ["--on-success", "trigger:done dev4", "--at", "+8s"];
    let soon = asked(&server, &hook);
    let missed = asked(&server, &["--at", "+8s", "--late-by", "1s"]);
    let asked_at = std::time::Instant::now();
    server.running.kill();
    eventually("their time is over", || asked_at.elapsed().as_secs() >= 10);
    let server = site.server("server", port, &[]);
    eventually("what is a little late runs", || {
        outcome(&server, &soon).as_deref() == Some("succeeded")
    });
    eventually("what is too late expires", || {
        outcome(&server, &missed).as_deref() == Some("expired")
    });
    eventually("the trigger is fired", || {
        let all = lines(&site.path("order.runs"));
        let fired = |line: &&String| line.starts_with("dev4") && line.contains("done");
        all.iter().filter(fired).count() == 1
    });
    let cancelled = server.operator(&["run", "cancel", &tomorrow]);
    assert_eq!(
        cancelled.status.code(),
        Some(0),
        "{}",
        all_output(&cancelled)
    );
    eventually("it is cancelled", || {
        outcome(&server, &tomorrow).as_deref() == Some("cancelled")
    });
    assert_eq!(
        lines(&order).len(),
        9,
        "two runs, and what the trigger led to"
    );
}
