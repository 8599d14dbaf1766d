//! The first screen: `status`, `doctor` and `version`, and nodes whose last run failed.

use crate::code::release_to_all;
use crate::console::Console;
use crate::support::{Site, all_output, bunraku, ended, eventually, shows};

#[test]
fn the_version_names_the_commit_and_the_build() {
    let output = bunraku()
        .args(["version", "--json"])
        .output()
        .expect("it runs");
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for field in ["version", "commit", "build", "target", "rustc"] {
        let text = version[field].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{field} in {version}");
    }
}

#[test]
fn without_a_server_doctor_says_what_is_missing_and_status_fails() {
    let output = bunraku().arg("doctor").output().expect("it runs");
    let text = all_output(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("✗ credentials    no credentials found"),
        "{text}"
    );
    assert!(text.contains("pass `--credentials DIR`"), "{text}");
    let output = bunraku().arg("status").output().expect("it runs");
    ended(&output, 1);
}

#[test]
fn a_failed_run_is_seen_on_the_first_screen_in_the_list_and_on_the_node() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let healthy = server.operator(&["status"]);
    ended(&healthy, 0);
    shows(&healthy, "Everything is healthy.");
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for_facts("web-1");
    let resources = "resources:\n  File[/no/such/directory/file]: {content: x}\n";
    release_to_all(&site, &server, resources);
    let ran = server.operator(&["node", "run", "web-1", "--released", "--wait"]);
    ended(&ran, 3);
    eventually("the list names what failed", || {
        let list = all_output(&server.operator(&["node", "list", "--failed"]));
        list.contains("failed, ") && list.contains("File[/no/such/directory/file]")
    });
    let shown = all_output(&server.operator(&["node", "show", "web-1"]));
    assert!(shown.contains("last run        failed at "), "{shown}");
    assert!(shown.contains("bunraku report show"), "{shown}");
    let console = Console::start(&site, &server);
    let nodes = console.page("/nodes?status=failed");
    assert!(nodes.contains("href=\"/nodes/web-1\""), "{nodes}");
    assert!(
        nodes.contains("<span class=\"pill bad\">idle</span>"),
        "{nodes}"
    );
    let node = console.page("/nodes/web-1");
    let report = node
        .split("href=\"/reports/")
        .nth(1)
        .expect("a link to the report");
    let report = report.split('"').next().expect("an id");
    let report = console.page(&format!("/reports/{report}"));
    for part in [
        "File[/no/such/directory/file]",
        "<dt>causes</dt>",
        "pill bad\">failed",
    ] {
        assert!(report.contains(part), "{part} in {report}");
    }
    let others = all_output(&server.operator(&["node", "list", "--drifted"]));
    assert!(others.contains("none of 1 node matches"), "{others}");
    let status = server.operator(&["status"]);
    let text = all_output(&status);
    assert_eq!(status.status.code(), Some(3), "{text}");
    assert!(
        text.contains("✗ 1 node failed in the last run: web-1"),
        "{text}"
    );
    assert!(text.contains("bunraku node list --failed"), "{text}");
    let doctor = server.operator(&["doctor"]);
    let text = all_output(&doctor);
    for part in ["✓ connection", "✓ version", "✓ clock", "✓ agents"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
