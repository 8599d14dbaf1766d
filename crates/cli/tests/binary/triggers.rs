//! Triggers with real agents: every cue becomes a run, and loops end.

use std::path::Path;

use crate::support::{
    Running, ServerProcess, Site, all_output, eventually, eventually_or, script_flags,
    write_and_commit,
};

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

fn lines(file: &Path) -> usize {
    text(file).lines().count()
}

/// Starts an agent whose runs execute this script, and that runs only on request.
fn agent(site: &Site, server: &ServerProcess, node: &str, script: &str, token: bool) -> Running {
    site.agent_with(node, &[server], token, &script_flags(script))
}

/// Lets both nodes fire the trigger at each other, and hold the lock.
fn permit(server: &ServerProcess) {
    for words in [
        &[
            "trigger",
            "permit",
            "go",
            "--fired-by",
            "a,b",
            "--hosts",
            "a,b",
        ][..],
        &["lock", "permit", "master", "--may-hold", "a,b"],
    ] {
        let permitted = server.operator(words);
        assert_eq!(
            permitted.status.code(),
            Some(0),
            "{}",
            all_output(&permitted)
        );
    }
}

fn fire(server: &ServerProcess, trigger: &str, hosts: &str) {
    let fired = server.operator(&["trigger", "fire", trigger, "--hosts", hosts]);
    assert_eq!(fired.status.code(), Some(0), "{}", all_output(&fired));
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
    eventually("all are in its queue", || {
        let queue = server.json(&["node", "queue", "lb-1"]);
        let causes = queue["pending"][0]["causes"].as_array();
        causes.is_some_and(|causes| causes.len() == 5)
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
    permit(&server);
    fire(&server, "go", "a");
    // The firing command may record its code after the run that it started recorded its own.
    let codes = || {
        let mut codes: Vec<String> = text(&codes).lines().map(str::to_owned).collect();
        codes.sort();
        codes
    };
    eventually("the chain is stopped", || codes().len() == 3);
    assert_eq!(text(&runs), "a\nb\na\n");
    assert_eq!(codes(), ["0", "0", "4"]);
    let history = all_output(&server.operator(&["trigger", "history"]));
    assert!(
        history.contains("stopped: the same node fired it earlier"),
        "{history}"
    );
}

/// Returns code whose runs always change something, and cue the other node.
fn code(site: &Site, runs: &Path) -> std::path::PathBuf {
    let place = site.path("code");
    std::fs::create_dir_all(&place).expect("a directory");
    let groups = "groups: {a: {nodes: a, resources: a.yaml}, b: {nodes: b, resources: b.yaml}}\n";
    std::fs::write(place.join("site.yaml"), groups).expect("written");
    for (own, other) in [("a", "b"), ("b", "a")] {
        let resources = format!(
            "resources:\n  Lock[master]: {{ensure: held, lease: 1h}}\n  \
             Exec[work]: {{command: \"/bin/sh -c 'echo {own} >> {}'\", notify: 'Trigger[go]'}}\n  \
             Trigger[go]: {{hosts: [{other}], ttl: 3}}\n",
            runs.display()
        );
        std::fs::write(place.join(format!("{own}.yaml")), resources).expect("written");
    }
    write_and_commit(&place, &[]);
    place
}

#[test]
fn a_trigger_resource_hands_the_chain_of_its_run_on_and_one_node_holds_the_lock() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let runs = site.path("runs");
    let code = code(&site, &runs);
    // The holder of a lock is a fact of every node that asks for it.
    let facts = site.path("facts.d");
    std::fs::create_dir_all(&facts).expect("a directory");
    let script = format!(
        "#!/bin/sh\nexec {} lock facts --server {} --credentials {}\n",
        env!("CARGO_BIN_EXE_bunraku"),
        server.address,
        site.path("b").join("tls").display()
    );
    let file = facts.join("locks.sh");
    std::fs::write(&file, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, mode).expect("executable");
    let facts = facts.display().to_string();
    let flags = ["--run-interval", "0s"];
    let a = site.agent_with("a", &[&server], true, &flags);
    let flags = [
        "--run-interval",
        "0s",
        "--facts-interval",
        "1s",
        "--external-facts",
        &facts,
    ];
    let _b = site.agent_with("b", &[&server], true, &flags);
    for node in ["a", "b"] {
        eventually("facts are there", || {
            server.operator(&["facts", "show", node, "kernel"]).stdout == b"Linux\n"
        });
    }
    let url = format!("file://{}", code.display());
    for words in [
        &["environment", "add", "production", &url][..],
        &["environment", "deploy", "production", "--wait"],
        &["release", "create", "production"],
    ] {
        let done = server.operator(words);
        assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    }
    permit(&server);
    fire(&server, "go", "a");
    let stopped =
        || all_output(&server.operator(&["trigger", "history"])).contains("no hops are left");
    eventually_or("the chain ends", stopped, || {
        let words = [&["trigger", "history"][..], &["report", "list"]];
        words
            .map(|words| all_output(&server.operator(words)))
            .concat()
            + &a.log()
    });
    assert_eq!(text(&runs), "a\nb\na\nb\n");
    // The chain ends within b's second run: its report comes after that.
    let mut reports = server.json(&["report", "list", "--node", "b"]);
    eventually("both runs are reported", || {
        reports = server.json(&["report", "list", "--node", "b"]);
        reports.as_array().is_some_and(|list| list.len() == 2)
    });
    let chain = &reports[0]["started"]["causes"][0]["chain"];
    let nodes: Vec<Option<&str>> = chain
        .as_array()
        .expect("a chain")
        .iter()
        .map(|hop| hop["node"].as_str())
        .collect();
    assert_eq!(nodes, [None, Some("a"), Some("b"), Some("a")]);
    let holders = server.json(&["lock", "show", "master"])["holders"].clone();
    assert_eq!(holders.as_array().expect("a list").len(), 1, "{holders}");
    assert_eq!(
        (&holders[0]["owner"], &holders[0]["session"]),
        (&"a".into(), &"engine".into())
    );
    eventually("the fact is there", || {
        let rows = server.json(&["query", "nodes[facts.bunraku_locks] { certname = \"b\" }"]);
        rows.to_string().contains(r#"{"master":["a"]}"#)
    });
}
