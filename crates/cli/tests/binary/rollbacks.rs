//! `bunraku release rollback`: what it prints, and what a node gets that joins afterwards.

use std::path::Path;
use std::process::Command;

use crate::code::{commit, repository};
use crate::support::{ServerProcess, Site, all_output, eventually};

const SITE: &str = "groups: {all: {nodes: '*', resources: all.yaml}}\n";

/// Runs a command that must succeed, and returns its stdout.
fn done(server: &ServerProcess, words: &[&str]) -> String {
    let output = server.operator(words);
    assert_eq!(output.status.code(), Some(0), "{}", all_output(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Deploys and releases the newest commit. Returns its first digits.
fn release(server: &ServerProcess, code: &Path) -> String {
    done(server, &["environment", "deploy", "production", "--wait"]);
    done(server, &["release", "create", "production"]);
    let head = Command::new("git")
        .current_dir(code)
        .args(["rev-parse", "HEAD"])
        .output()
        .expect("git runs; scripts/setup installs it");
    String::from_utf8_lossy(&head.stdout)[..8].to_owned()
}

/// Returns the code of each node in the newest release.
fn codes(server: &ServerProcess) -> Vec<(String, String)> {
    let shown = server.json(&["release", "show", "production"]);
    let map = shown["map"].as_array().expect("a map").iter();
    map.map(|entry| {
        let text = |name: &str| entry[name].as_str().expect("text").to_owned();
        (text("node"), text("code_id")[..8].to_owned())
    })
    .collect()
}

#[test]
fn a_rollback_says_what_nodes_are_left_on_and_holds_for_nodes_that_join_later() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let _first = site.agent("web-1", &[&server], true);
    server.wait_for_facts("web-1");
    let resources = |text: &str| format!("resources:\n  Notify[{text}]: {{}}\n");
    let code = repository(
        &site,
        &[("site.yaml", SITE), ("all.yaml", &resources("one"))],
    );
    let url = format!("file://{}", code.display());
    done(&server, &["environment", "add", "production", &url]);
    let one = release(&server, &code);
    commit(&code, &[("all.yaml", &resources("two"))]);
    let two = release(&server, &code);
    let _second = site.agent("web-2", &[&server], true);
    let on = |node: &str, code: &str| (node.to_owned(), code.to_owned());
    let both = |code: &str| vec![on("web-1", code), on("web-2", code)];
    eventually("the second node has the new code", || {
        codes(&server) == both(&two)
    });
    let rollback = ["release", "rollback", "production", "--to", "1"];
    let output = done(
        &server,
        &[&rollback[..], &["--reason", "it broke"]].concat(),
    );
    let expected = format!(
        "release 4  production  rollback to 1  enforce  2 of 2 nodes changed  current
  2 nodes on {one}  enforce  web-1, web-2
  new nodes get {one}, as in release 1
  {two} stays out until someone releases it again
"
    );
    assert_eq!(output, expected);
    assert_eq!(codes(&server), both(&one));
    let resumed = server.operator(&["release", "resume", "production"]);
    assert!(
        all_output(&resumed).contains(&format!("{two} was rolled back")),
        "{}",
        all_output(&resumed)
    );
    let _third = site.agent("web-3", &[&server], true);
    let all = [both(&one), vec![on("web-3", &one)]].concat();
    eventually("the third node has the old code", || codes(&server) == all);
}
