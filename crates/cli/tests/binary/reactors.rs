//! `bunraku reactor`: rules from git, tested, and one that a real alert matches.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::{ONE_GROUP, ServerProcess, Site, all_output, eventually, write_and_commit};

const RULES: &str = "\
mend:
  when: {event: resource, type: Service, title: 'nginx*', status: [failed, skipped]}
  then: {trigger: refresh load balancers, hosts: [lb-1, '${node}'], reason: '${title} failed on ${node}'}
  limits: {quiet: 10s, occurrences: 2, within: 5m, per: node}
disk:
  when: {event: alert, hook: prometheus, alert.status: firing}
  then: {trigger: clean, hosts: '${alert.labels.node}'}
";

const REACTORS: &str = "reactors/web.yaml";

fn repository(site: &Site) -> PathBuf {
    let code = site.path("code");
    let all = "resources:\n  File[/etc/motd]: {content: hello}\n";
    write_and_commit(&code, &[ONE_GROUP, ("all.yaml", all), (REACTORS, RULES)]);
    code
}

/// Creates the environment `production` from this repository and deploys it. Returns the
/// secret for hooks.
pub(crate) fn deploy_rules(server: &ServerProcess, code: &Path) -> String {
    let url = format!("file://{}", code.display());
    let added = server.json(&["environment", "add", "production", &url]);
    let (deployed, text) = said(server, &["environment", "deploy", "production", "--wait"]);
    assert_eq!(deployed, Some(0), "{text}");
    added["hook_secret"].as_str().expect("a secret").to_owned()
}

/// Returns the exit code and standard output.
pub(crate) fn said(server: &ServerProcess, words: &[&str]) -> (Option<i32>, String) {
    let output = server.operator(words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

/// Posts an alert as Alertmanager does. Returns the status.
fn post(server: &ServerProcess, secret: &str, body: &serde_json::Value) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--max-time", "60"])
        .args(["--output", "/dev/null", "--write-out", "%{http_code}"])
        .args(["--header", &format!("Authorization: Bearer {secret}")])
        .args(["--data-binary", &body.to_string()])
        .arg(format!(
            "https://{}/v1/hooks/production/events/prometheus",
            server.address
        ))
        .output()
        .expect("curl runs; scripts/setup installs it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn rules_come_from_git_are_shown_and_tried_out_and_an_alert_starts_a_run() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let none = server.operator(&["reactor", "list"]);
    assert!(
        all_output(&none).contains("no environment has reactors"),
        "{}",
        all_output(&none)
    );
    let runs = site.path("runs");
    let script = format!("echo \"$BUNRAKU_CAUSES\" >> {}", runs.display());
    let _agent = site.script_agent("lb-1", &server, &script);
    let code = repository(&site);
    let secret = deploy_rules(&server, &code);
    eventually("the rules are there", || {
        said(&server, &["reactor", "list"]).1.contains("mend")
    });
    check_shown(&server);
    tried_out(&site, &server);
    alerted(&server, &secret, &runs);
    // A mistake keeps the existing rules, and its location is reported.
    let mistake = "mend:\n  when: {event: resorce}\n  then: {hosts: lb-1}\n";
    write_and_commit(&code, &[(REACTORS, mistake)]);
    let (refused, text) = said(&server, &["environment", "deploy", "production", "--wait"]);
    assert_eq!(refused, Some(1), "{text}");
    assert!(
        text.contains("reactors/web.yaml:2:17: `resorce` is not an event; use one of resource,"),
        "{text}"
    );
    let (_, list) = said(&server, &["reactor", "list"]);
    assert!(list.contains("reactors/web.yaml:5"), "{list}");
}

fn check_shown(server: &ServerProcess) {
    let (_, list) = said(server, &["reactor", "list"]);
    let words: Vec<Vec<&str>> = list
        .lines()
        .map(|line| {
            let cells = line.split("  ").map(str::trim);
            cells.filter(|cell| !cell.is_empty()).collect()
        })
        .collect();
    assert_eq!(
        words,
        [
            ["REACTOR", "ENVIRONMENT", "WHEN", "TRIGGER", "HELD", "PLACE"],
            [
                "disk",
                "production",
                "alert alert.status=firing hook=prometheus",
                "clean",
                "0",
                "reactors/web.yaml:5"
            ],
            [
                "mend",
                "production",
                "resource status=failed|skipped title=nginx* type=Service",
                "refresh load balancers",
                "0",
                "reactors/web.yaml:1"
            ],
        ]
    );
    let (_, page) = said(server, &["reactor", "show", "mend"]);
    let expected = "\
reactor      mend
environment  production
place        reactors/web.yaml:1
when         resource status=failed|skipped title=nginx* type=Service
trigger      refresh load balancers
for          lb-1, ${node}
limits       after 10 s of quiet, after 2 occurrences within 300 s, separately for each node
held         0
";
    assert_eq!(page, expected);
    let missing = server.operator(&["reactor", "show", "nothing"]);
    assert_eq!(missing.status.code(), Some(1), "{}", all_output(&missing));
}

fn tried_out(site: &Site, server: &ServerProcess) {
    let event = site.path("event.json");
    let test = |status: &str| {
        let text = json!({"event": "resource", "node": "lb-1", "type": "Service",
            "title": "nginx", "status": status});
        std::fs::write(&event, text.to_string()).expect("written");
        said(server, &["reactor", "test", &event.display().to_string()])
    };
    assert_eq!(
        test("failed"),
        (
            Some(0),
            "- disk  its event is `alert`\n✓ mend  fires refresh load balancers for lb-1: nginx failed on lb-1\n"
                .to_owned()
        )
    );
    let (code, text) = test("changed");
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("- mend  `status` is `changed`"), "{text}");
    let history = all_output(&server.operator(&["trigger", "history"]));
    assert!(
        !history.contains("fired"),
        "a test fires nothing: {history}"
    );
}

fn alerted(server: &ServerProcess, secret: &str, runs: &Path) {
    let alert = json!({"version": "4", "groupKey": "{}", "status": "firing", "receiver": "bunraku",
        "alerts": [{"status": "firing", "labels": {"alertname": "DiskFull", "node": "lb-1"}}]});
    assert_eq!(post(server, "a guess", &alert), "401");
    assert_eq!(post(server, secret, &alert), "200");
    let text = || std::fs::read_to_string(runs).unwrap_or_default();
    eventually("the run of the alert", || text().lines().count() == 1);
    assert!(text().contains("alert DiskFull is firing"), "{}", text());
    let (_, page) = said(server, &["reactor", "show", "disk"]);
    assert!(
        page.contains(
            "clean  fired by reactor disk of production for 1 host: alert DiskFull is firing"
        ),
        "{page}"
    );
}
