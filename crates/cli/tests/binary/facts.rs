//! Facts through the binary: changes, and too many facts.

use std::path::Path;

use expect_test::expect;

use crate::support::{Running, ServerProcess, Site, all_output, ended, eventually, shows};

/// Starts an agent that reads additional facts from `facts.json` in this directory.
fn agent_with_facts(site: &Site, server: &ServerProcess, directory: &Path) -> Running {
    let file = site.path("agent.toml");
    let text = format!(
        "[agent]\nexternal_facts = [{:?}]\n",
        directory.display().to_string()
    );
    std::fs::write(&file, text).expect("written");
    site.agent_with(
        "web-1",
        &[server],
        true,
        &["--config", &file.display().to_string()],
    )
}

fn put_facts(directory: &Path, text: &str) {
    std::fs::create_dir_all(directory).expect("a directory");
    std::fs::write(directory.join("facts.json"), text).expect("written");
}

fn refresh(server: &ServerProcess) {
    let refreshed = server.operator(&["facts", "refresh", "web-1"]);
    ended(&refreshed, 0);
}

#[test]
fn changes_between_two_submissions_are_shown_by_fact() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let directory = site.path("facts.d");
    put_facts(
        &directory,
        r#"{"role": "web", "site": {"rack": 7, "room": "a b"}}"#,
    );
    let _agent = agent_with_facts(&site, &server, &directory);
    eventually("facts are there", || {
        server.operator(&["facts", "show", "web-1", "role"]).stdout == b"web\n"
    });
    // Facts that are not yet stored would be replaced by the next ones.
    eventually("they are kept", || {
        let found = server.json(&["query", r#"nodes { facts.role = "web" }"#]);
        found.as_array().is_some_and(|found| found.len() == 1)
    });
    let first = server.operator(&["facts", "diff", "web-1"]);
    assert_eq!(
        first.status.code(),
        Some(1),
        "nothing to compare with: {}",
        all_output(&first)
    );
    put_facts(
        &directory,
        r#"{"role": "db", "site": {"rack": 7}, "tier": [1]}"#,
    );
    refresh(&server);
    let difference = server.json(&["facts", "diff", "web-1"]);
    // The machine's own facts may have changed meanwhile, so check only ours.
    let changes = difference["changes"].as_array().expect("a list").iter();
    let ours = changes.filter(|change| {
        ["role", "site", "tier"]
            .iter()
            .any(|name| change["path"].as_str().expect("text").starts_with(name))
    });
    expect![[r#"[{"path":"role","before":"web","after":"db"},{"path":"site.room","before":"a b"},{"path":"tier","after":[1]}]"#]]
        .assert_eq(&serde_json::to_string(&ours.collect::<Vec<_>>()).expect("JSON"));
    let shown = all_output(&server.operator(&["facts", "diff", "web-1"]));
    assert!(
        shown.contains("\n  role\n    - \"web\"\n    + \"db\"\n")
            && shown.contains("facts changed"),
        "{shown}"
    );
    let history = server.json(&["facts", "history", "web-1"]);
    let ids: Vec<&str> = history
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| entry["fact_set"].as_str().expect("an id"))
        .collect();
    assert!(
        ids.len() >= 2 && difference["to"]["fact_set"] == ids[0],
        "{history}"
    );
    let same = server.json(&[
        "facts",
        "diff",
        "web-1",
        "--from",
        ids[0],
        "--to",
        &ids[0][..12],
    ]);
    assert_eq!(same["changes"], serde_json::json!([]));
    let unknown = server.operator(&["facts", "diff", "web-1", "--from", "zz"]);
    ended(&unknown, 64);
    let missing = server.operator(&["facts", "diff", "web-1", "--from", "0000"]);
    ended(&missing, 1);
    shows(&missing, "bunraku facts history web-1");
}

#[test]
fn an_oversized_fact_set_is_refused_and_the_agent_reports_it_and_continues() {
    let site = Site::new();
    let file = site.path("server.toml");
    std::fs::write(&file, "[server.limits]\nfacts_bytes = 500000\n").expect("written");
    let server = site.server("server", 0, &["--config", &file.display().to_string()]);
    let directory = site.path("facts.d");
    put_facts(
        &directory,
        &format!(r#"{{"large": "{}"}}"#, "x".repeat(900_000)),
    );
    let agent = agent_with_facts(&site, &server, &directory);
    server.wait_for("web-1", "idle");
    eventually("the agent says why", || {
        agent.log().contains("exceeds the limit of 500000 bytes")
    });
    let refused = server.operator(&["facts", "refresh", "web-1"]);
    ended(&refused, 3);
    shows(&refused, "500000 bytes");
    put_facts(&directory, "{}");
    refresh(&server);
    let shown = server.operator(&["facts", "show", "web-1", "kernel"]);
    assert_eq!(shown.stdout, b"Linux\n");
}
