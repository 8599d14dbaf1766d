//! The audit log as its readers see it, with a server that is killed in between.

use crate::support::{ServerProcess, Site, all_output, eventually};

/// Runs a command, and returns its output if it succeeded.
fn succeeds(server: &ServerProcess, arguments: &[&str]) -> String {
    let output = server.operator(arguments);
    assert!(output.status.success(), "{}", all_output(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the line of the newest record, `NUMBER:HASH`.
fn newest(server: &ServerProcess) -> String {
    let text = succeeds(server, &["audit", "verify"]);
    let line = text.lines().find_map(|line| line.strip_prefix("newest: "));
    line.unwrap_or_else(|| panic!("no newest record in {text}"))
        .to_owned()
}

#[test]
fn changes_and_refusals_are_listed_verified_and_exported_even_after_a_kill() {
    let site = Site::new();
    let server = site.server("s1", 0, &[]);
    let port = server.address.port();
    let token = [
        "token",
        "create",
        "--node",
        "web-1",
        "--audit-reason",
        "a new web server",
    ];
    let token = succeeds(&server, &token).trim().to_owned();
    let refused = server.operator(&["node", "disable", "nobody", "--reason", "x"]);
    assert!(!refused.status.success());
    let list = succeeds(&server, &["audit", "list", "--action", "create-token"]);
    assert!(
        list.contains("succeeded") && list.contains("a new web server"),
        "{list}"
    );
    let list = succeeds(&server, &["audit", "list", "--outcome", "refused"]);
    assert!(
        list.contains("disable-node") && list.contains("refused (404)"),
        "{list}"
    );
    eventually("both are linked", || {
        let all = server.json(&["audit", "list"]);
        let all = all.as_array().expect("a list");
        all.iter().all(|record| record["number"].is_u64())
    });
    let anchor = newest(&server);
    server.running.kill();

    let server = site.server("s1", port, &[]);
    eventually("the start is recorded", || {
        let starts = server.json(&["audit", "list", "--action", "start-server"]);
        starts.as_array().is_some_and(|starts| starts.len() == 2)
    });
    succeeds(&server, &["audit", "verify", "--anchor", &anchor]);
    let file = site.path("audit.jsonl");
    let path = file.to_str().expect("text");
    succeeds(&server, &["audit", "export", "--out", path]);
    succeeds(
        &server,
        &["audit", "verify", "--file", path, "--anchor", &anchor],
    );
    let text = std::fs::read_to_string(&file).expect("exported");
    assert!(!text.contains(&token), "the token is in the log");

    let forged = text.replace("a new web server", "a new database");
    std::fs::write(&file, forged).expect("written");
    let broken = server.operator(&["audit", "verify", "--file", path]);
    assert_eq!(broken.status.code(), Some(1));
    let said = all_output(&broken);
    assert!(said.contains("the audit log is not intact"), "{said}");
    assert!(said.contains("one of them was changed"), "{said}");
}
