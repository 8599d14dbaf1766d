//! Agents follow the servers. A server that starts while two of three are gone serves read-only
//! requests.

use std::path::Path;
use std::time::Instant;

use bunraku_model::ContentId;
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster_support::{Cluster, healthy, status};
use crate::support::{Running, ServerProcess, all_output, eventually, write_and_commit};

/// Returns the servers in the order in which a node of this name tries them.
fn order(cluster: &Cluster, node: &str) -> [usize; 4] {
    let mut order = [1, 2, 3, 4];
    order.sort_by_cached_key(|number| {
        let address = format!("127.0.0.1:{}", cluster.ports[number - 1][0]);
        ContentId::of(format!("{node} {address}").as_bytes())
    });
    order
}

/// Returns a name whose order begins with these servers.
fn named(cluster: &Cluster, wanted: [usize; 2]) -> String {
    let names = (0..).map(|number| format!("node-{number}"));
    let fitting = |name: &String| order(cluster, name).starts_with(&wanted);
    names.into_iter().find(fitting).expect("there is one")
}

/// Returns the server that an agent connected to last.
fn server_of(cluster: &Cluster, agent: &Running) -> Option<usize> {
    let log = agent.log();
    let line = log.lines().rfind(|line| line.contains("connected"))?;
    let is_there = |number: &usize| {
        let address = format!("127.0.0.1:{}", cluster.ports[number - 1][0]);
        line.contains(&address)
    };
    (1..=4).find(is_there)
}

/// Releases a file for every node; its text is a file of the code.
fn release(cluster: &Cluster, server: &ServerProcess, nodes: &[String]) {
    let code = cluster.site.path("code");
    std::fs::create_dir(&code).expect("made");
    let mut top = "base:\n".to_owned();
    for node in nodes {
        let place = cluster.site.path(&format!("{node}.page"));
        let state = format!(
            "{}:\n  file.managed:\n    - source: salt://page\n",
            place.display()
        );
        std::fs::write(code.join(format!("{node}.sls")), state).expect("written");
        top.push_str(&format!("  '{node}': ['{node}']\n"));
    }
    std::fs::write(code.join("top.sls"), top).expect("written");
    std::fs::write(code.join("page"), "from the code\n").expect("written");
    write_and_commit(&code, &[]);
    let url = format!("file://{}", code.display());
    for command in [
        &["environment", "add", "production", &url][..],
        &["environment", "deploy", "production", "--wait"],
        &["release", "create", "production"],
        &["release", "show", "production", "--wait"],
    ] {
        let done = server.operator(command);
        assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    }
}

const FLAGS: [&str; 4] = ["--run-interval", "1s", "--run-splay", "0s"];

#[test]
fn agents_move_when_their_server_dies_and_a_server_started_without_a_majority_reads_on() {
    let cluster = Cluster::new();
    let made = cluster.set_up(1, &["init"]);
    assert!(made.status.success(), "{}", all_output(&made));
    let first = cluster.server(1);
    let orders = [[1, 2], [2, 1], [2, 3], [3, 4]];
    let names = orders.map(|order| named(&cluster, order));
    let mut agents: Vec<Running> = names
        .iter()
        .map(|name| cluster.site.agent_with(name, &[&first], true, &FLAGS))
        .collect();
    for name in &names {
        eventually("facts are there", || {
            let shown = first.operator(&["facts", "show", name, "kernel"]);
            shown.stdout == b"Linux\n"
        });
    }
    let second = cluster.join(&first, 2);
    let third = cluster.join(&first, 3);
    let fourth = cluster.join(&first, 4);
    eventually("the data is on three", || {
        status(&first).is_some_and(|status| healthy(&status) == 3)
    });
    eventually("all agents went to the server of their choice", || {
        let places = agents.iter().map(|agent| server_of(&cluster, agent));
        places.eq(orders.map(|order| Some(order[0])))
    });
    // This one misses the release, and comes back after two servers are gone.
    let (away, stays) = (&names[3], &names[0]);
    drop(agents.pop());
    release(&cluster, &first, &names);

    second.running.kill();
    let killed = Instant::now();
    eventually("its agents spread over the others", || {
        let places = agents.iter().map(|agent| server_of(&cluster, agent));
        places.eq([Some(1), Some(1), Some(3)])
    });
    eprintln!("agents moved within {:?}", killed.elapsed());
    for name in &names[..3] {
        first.wait_for(name, "idle");
    }
    let page = |name: &str| {
        let place = cluster.site.path(&format!("{name}.page"));
        std::fs::read_to_string(place).unwrap_or_default()
    };
    eventually("the release is enforced", || {
        page(stays) == "from the code\n"
    });
    eventually("and reported", || {
        let reports = first.json(&["report", "list", "--node", stays]);
        reports.as_array().is_some_and(|list| !list.is_empty())
    });

    third.running.kill();
    fourth.running.kill();
    // It stores no data, and finds one datastore of three.
    let fourth = cluster.server(4);
    looks_but_changes_nothing(&fourth, stays);

    std::fs::remove_file(cluster.site.path(&format!("{stays}.page"))).expect("removed");
    eventually("what is in an agent's cache is enforced", || {
        page(stays) == "from the code\n"
    });
    let back = cluster.site.agent_with(away, &[&fourth], false, &FLAGS);
    eventually("what an agent does not have yet is fetched", || {
        page(away) == "from the code\n"
    });

    // The remaining datastore answers read-only requests until it is restarted itself.
    let view = cluster.directory(1).join("cluster/view");
    looks_but_changes_nothing(&first, stays);
    assert!(!view.exists(), "it needs no copy");
    kill_datastore(&cluster.directory(1));
    eventually("a copy of its data is read", || {
        let shown = first.operator(&["node", "show", stays]);
        view.exists() && shown.status.success()
    });
    looks_but_changes_nothing(&first, stays);

    // Its server restarts as well, alone.
    first.running.kill();
    let first = cluster.server(1);
    looks_but_changes_nothing(&first, stays);
    assert!(view.exists(), "it reads a copy of its own data");

    let _second = cluster.server(2);
    eventually("the copy is thrown away", || !view.exists());
    eventually("the first one writes again", || {
        first.operator(&["token", "create"]).status.success()
    });
    eventually("there is a majority again", || {
        fourth.operator(&["token", "create"]).status.success()
    });
    for name in &names {
        fourth.wait_for(name, "idle");
    }
    let ping = fourth.operator(&["node", "ping", away]);
    assert_eq!(
        ping.status.code(),
        Some(0),
        "{}\n{}",
        all_output(&ping),
        back.log()
    );
    let listed = fourth.operator(&["node", "list"]);
    assert!(
        !all_output(&listed).contains("old"),
        "{}",
        all_output(&listed)
    );
}

/// Kills the etcd that stores the data of the server in this directory.
fn kill_datastore(directory: &Path) {
    let pid = std::fs::read_to_string(directory.join("cluster/etcd.pid")).expect("it runs one");
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), Signal::KILL).expect("it is killed");
}

fn looks_but_changes_nothing(server: &ServerProcess, node: &str) {
    for reading in [
        &["node", "list"][..],
        &["node", "show", node],
        &["facts", "show", node, "kernel"],
        &["query", "nodes { }"],
        &["report", "list"],
        &["release", "show", "production"],
        &["environment", "list"],
    ] {
        let output = server.operator(reading);
        let text = all_output(&output);
        assert!(output.status.success(), "{reading:?}: {text}");
        assert!(
            text.contains("this output may be stale"),
            "{reading:?}: {text}"
        );
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.trim().is_empty(), "{reading:?} shows nothing");
    }
    let shown = server.operator(&["cluster", "status"]);
    let text = all_output(&shown);
    assert_eq!(shown.status.code(), Some(3), "{text}");
    assert!(text.contains("NO MAJORITY of 3 datastores"), "{text}");
    for writing in [
        &["token", "create"][..],
        &["release", "create", "production"],
        &["node", "disable", node, "--reason", "why not"],
    ] {
        let refused = server.operator(writing);
        let text = all_output(&refused);
        assert_eq!(refused.status.code(), Some(1), "{writing:?}: {text}");
        let reason = "the datastores have had no majority";
        assert!(text.contains(reason), "{writing:?}: {text}");
        assert!(text.contains("nothing was done"), "{writing:?}: {text}");
    }
}
