//! Queries about the reports of nodes: the index follows new reports.

use std::time::Duration;

use bunraku_wire::api::{EventStatus, PropertyChange, ReportEvent, RunEnding};

use crate::query::{ask, becomes};
use crate::reports::{finished, new_run, resource, send, started, whole};
use crate::support::TestServer;

fn corrected(title: &str) -> ReportEvent {
    let mut event = resource(title, EventStatus::Changed);
    if let ReportEvent::Resource(resource) = &mut event {
        resource.corrective = true;
        resource.changes = [("mode", "0644"), ("owner", "root")]
            .map(|(property, to)| PropertyChange {
                property: property.to_owned(),
                from: None,
                to: Some(to.to_owned()),
                diff: None,
            })
            .to_vec();
    }
    event
}

const FAILED: &str = r#"events[certname, title, message] { status = "failed" }"#;
const EVERYTHING: [&str; 3] = [
    "events[certname, run, time, type, title, status, property, new_value, corrective, message]",
    "reports[certname, run, status, mode, start_time, end_time, changed, failed, unchanged, method]",
    "nodes[certname, report, report_status, report_mode, report_corrective, report_time]",
];

async fn everything(server: &TestServer) -> Vec<String> {
    let mut text = Vec::new();
    for query in EVERYTHING {
        text.push(ask(server, query).await);
    }
    text
}

#[tokio::test]
async fn the_index_follows_a_run_as_it_goes_and_is_the_same_after_a_restart() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    server.node("db-1").await;
    let run = new_run();
    let first = vec![
        started(),
        resource("/same", EventStatus::Unchanged),
        corrected("/a"),
    ];
    send(&node, run, 0, first).await.expect("stored");
    let changes = "events[title, property, new_value] { corrective = true }";
    let text = r#"[{"title":"/a","property":"mode","new_value":"0644"},{"title":"/a","property":"owner","new_value":"root"}]"#;
    becomes(&server, changes, text).await;
    let status = "reports[status, changed, unchanged]";
    let text = r#"[{"status":"unfinished","changed":1,"unchanged":1}]"#;
    becomes(&server, status, text).await;
    let by_report = r#"nodes[certname] { report_status = "failed" }"#;
    assert_eq!(ask(&server, by_report).await, "[]", "it is not over");
    let failed = resource("/b", EventStatus::Failed);
    send(&node, run, 3, vec![failed]).await.expect("stored");
    let text = r#"[{"certname":"web-1","title":"/b","message":"no such directory"}]"#;
    becomes(&server, FAILED, text).await;
    send(&node, run, 4, vec![finished(RunEnding::Failed)])
        .await
        .expect("stored");
    becomes(&server, by_report, r#"[{"certname":"web-1"}]"#).await;
    becomes(&server, "reports[status]", r#"[{"status":"failed"}]"#).await;
    let count = "events[count()]";
    let whole = ask(&server, count).await;
    assert_eq!(whole, r#"[{"count()":3}]"#, "none twice, none unchanged");
    let with_events = r#"nodes[certname] { events { title = "/b" } }"#;
    assert_eq!(ask(&server, with_events).await, r#"[{"certname":"web-1"}]"#);
    let before = everything(&server).await;
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    assert_eq!(everything(&server).await, before, "rebuilt from nothing");
    server.shutdown().await;
}

#[tokio::test]
async fn reports_leave_the_index_with_what_is_kept_and_with_their_node() {
    let mut server =
        TestServer::start_with(|options| options.services.reports.kept_per_node = 2).await;
    let node = server.node("web-1").await;
    let runs = [new_run(), new_run(), new_run()];
    let failing = vec![
        started(),
        resource("/b", EventStatus::Failed),
        finished(RunEnding::Failed),
    ];
    send(&node, runs[0], 0, failing).await.expect("stored");
    let text = r#"[{"certname":"web-1","title":"/b","message":"no such directory"}]"#;
    becomes(&server, FAILED, text).await;
    for run in &runs[1..] {
        whole(&node, *run, RunEnding::Succeeded).await;
    }
    becomes(&server, FAILED, "[]").await;
    becomes(&server, "reports[count()]", r#"[{"count()":2}]"#).await;
    let newest = format!(r#"[{{"report":"{}"}}]"#, runs[2]);
    becomes(&server, "nodes[report]", &newest).await;
    server
        .operator
        .delete::<()>("/v1/nodes/web-1")
        .await
        .expect("removed");
    becomes(&server, "reports[certname, run]", "[]").await;
    becomes(&server, "events[certname, run]", "[]").await;
    // A new node with the same name has none of the earlier node's reports.
    server.node("web-1").await;
    let again = r#"[{"certname":"web-1","report":null}]"#;
    becomes(&server, "nodes[certname, report]", again).await;
    assert_eq!(ask(&server, "reports[certname, run]").await, "[]");
    server.shutdown().await;
}

#[tokio::test]
async fn of_many_reports_only_the_newest_ten_are_in_the_index() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    // A run that never ended makes no difference.
    let oldest = new_run();
    send(&node, oldest, 0, vec![started()])
        .await
        .expect("stored");
    let runs: Vec<_> = (0..11).map(|_| new_run()).collect();
    for run in &runs {
        whole(&node, *run, RunEnding::Succeeded).await;
    }
    let last = format!(r#"[{{"report":"{}"}}]"#, runs[10]);
    becomes(&server, "nodes[report]", &last).await;
    becomes(&server, "reports[count()]", r#"[{"count()":10}]"#).await;
    becomes(&server, "events[count()]", r#"[{"count()":10}]"#).await;
    let first = format!(r#"reports[run] {{ run = "{}" }}"#, runs[0]);
    assert_eq!(ask(&server, &first).await, "[]");
    let before = everything(&server).await;
    let (directory, mut options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory.clone(), options.clone()).await;
    assert_eq!(everything(&server).await, before, "rebuilt from nothing");
    server.shutdown().await;
    options.services.reports.kept_for = Duration::from_millis(1);
    let mut server = TestServer::open(directory, options).await;
    becomes(&server, "reports[run]", "[]").await;
    becomes(&server, "nodes[report]", r#"[{"report":null}]"#).await;
    server.shutdown().await;
}
