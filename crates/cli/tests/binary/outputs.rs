//! Outputs that pass from one node to another, with a real server and two agents.

use std::path::Path;

use crate::support::{ServerProcess, Site, all_output, eventually, write_and_commit};

/// Commits states for both nodes, deploys and releases them.
fn release(site: &Site, server: &ServerProcess, database: &str, web: &str) {
    let code = site.path("code");
    let first = !code.exists();
    let top = "base:\n  'db1': [database]\n  'web1': [web]\n";
    let web = web.replace("CONF", site.path("conf").to_str().expect("a path"));
    let files = [
        ("top.sls", top),
        ("database.sls", database),
        ("web.sls", &*web),
    ];
    write_and_commit(&code, &files);
    if first {
        let url = format!("file://{}", code.display());
        let added = server.operator(&["environment", "add", "production", &url]);
        assert_eq!(added.status.code(), Some(0), "{}", all_output(&added));
    }
    for command in [
        &["environment", "deploy", "production", "--wait"][..],
        &["release", "create", "production"],
        &["release", "show", "production", "--wait"],
    ] {
        let done = server.operator(command);
        assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    }
}

const DATABASE: &str = "make a token:
  cmd.run:
    - name: echo token-$((40 + 2))
    - register: token
";
const WEB: &str = "CONF:
  file.managed:
    - contents: 'token = ${ node(\"db1\").token.stdout }'
";

#[test]
fn an_ordered_run_waits_for_the_node_that_gives_and_passes_its_outputs_on() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let flags = ["--run-interval", "0s"];
    let _agents = ["db1", "web1"].map(|node| site.agent_with(node, &[&server], true, &flags));
    for node in ["db1", "web1"] {
        eventually("facts are there", || {
            let shown = server.operator(&["facts", "show", node, "kernel"]);
            shown.stdout == b"Linux\n"
        });
    }
    release(&site, &server, DATABASE, WEB);
    let file = site.path("site.yaml");
    let text =
        "applications:\n  shop:\n    components:\n      web: {node: web1}\n      db: {node: db1}\n";
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("a path");
    let conf = || std::fs::read_to_string(site.path("conf")).unwrap_or_default();
    let failure = |node: &str| {
        let reports = server.json(&["report", "list", "--node", node]);
        reports[0]["failures"][0]["message"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };

    // Alone, while no output was ever registered.
    let alone = server.operator(&["node", "run", "web1", "--wait"]);
    assert_eq!(alone.status.code(), Some(3), "{}", all_output(&alone));
    let said = failure("web1");
    assert_eq!(
        said,
        "node db1 has not registered `token`: none of its runs has registered it yet"
    );

    let plan = server.operator(&["plan", "--site", file]);
    assert!(
        all_output(&plan).contains("waits for db1: output `token`"),
        "{}",
        all_output(&plan)
    );
    let noop = server.operator(&["run", "--site", file, "--yes", "--noop"]);
    assert_eq!(noop.status.code(), Some(0), "{}", all_output(&noop));
    assert_eq!(conf(), "");
    let done = server.operator(&["run", "--site", file, "--yes"]);
    assert_eq!(done.status.code(), Some(0), "{}", all_output(&done));
    assert_eq!(conf(), "token = token-42\n");

    // Outside of an ordered run, the last registered output counts.
    std::fs::remove_file(site.path("conf")).expect("removed");
    let alone = server.operator(&["node", "run", "web1", "--wait"]);
    assert_eq!(alone.status.code(), Some(0), "{}", all_output(&alone));
    assert_eq!(conf(), "token = token-42\n");

    // In an ordered run, only outputs from that run count: no state registers the token any more.
    release(
        &site,
        &server,
        &DATABASE.replace("register: token", "register: other"),
        WEB,
    );
    let failed = server.operator(&["run", "--site", file, "--yes"]);
    assert_eq!(failed.status.code(), Some(3), "{}", all_output(&failed));
    let warning = "warning: web1 reads the output `token` of db1, but no resource in its catalog registers it";
    assert!(
        all_output(&failed).contains(warning),
        "{}",
        all_output(&failed)
    );
    let said = failure("web1");
    assert_eq!(
        said,
        "node db1 has not registered `token` in this run: no state in its catalog registers it"
    );

    // A secret stays on its node, and appears nowhere.
    let secret = format!("{DATABASE}    - no_log: True\n")
        .replace("token-$((40 + 2))", "whisper-$((50 + 5))");
    release(&site, &server, &secret, WEB);
    let failed = server.operator(&["run", "--site", file, "--yes"]);
    assert_eq!(failed.status.code(), Some(3), "{}", all_output(&failed));
    let said = failure("web1");
    assert_eq!(
        said,
        "node db1 has not registered `token` in this run: it is a secret and is not sent"
    );
    let reports = server.json(&["report", "list", "--node", "db1"]);
    let id = reports[0]["run"].as_str().expect("an id");
    let whole = server.json(&["report", "show", id, "--logs"]).to_string();
    assert!(whole.contains("[secret]"), "{whole}");
    assert!(!whole.contains("whisper-55"), "{whole}");
    for log in ["server.log", "db1.log", "web1.log"] {
        let text = std::fs::read_to_string(site.path(log)).expect("a log");
        assert!(!text.contains("whisper-55"), "{log}: {text}");
    }
    assert_eq!(holding(&site.path("db1"), "whisper-55"), None);
    assert_eq!(holding(&site.path("db1.engine"), "whisper-55"), None);
}

/// Returns a file below a directory that contains this text.
fn holding(directory: &Path, text: &str) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = holding(&path, text) {
                return Some(found);
            }
        } else if std::fs::read(&path)
            .is_ok_and(|read| String::from_utf8_lossy(&read).contains(text))
        {
            return Some(path);
        }
    }
    None
}
