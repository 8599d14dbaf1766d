//! What one node may send and store, and that others and operators notice nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bunraku_model::NodeRunId;
use bunraku_server::RateOptions;
use bunraku_store::SharedStore;
use bunraku_store::testing::Overlay;
use bunraku_wire::api::{
    EventStatus, LogLine, ReportBatch, ReportEvent, ReportReceipt, ReportSummary, RunEnding,
};
use bunraku_wire::{Client, ClientError};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::reports::{finished, new_run, resource, started};
use crate::support::{TestServer, eventually};

/// The refusal of a node that is over its budget says when to try again.
fn assert_over_budget<T: std::fmt::Debug>(outcome: Result<T, ClientError>, part: &str) {
    let error = outcome.expect_err("over budget");
    assert_eq!(error.status(), Some(429), "{error:?}");
    assert!(error.retry_after().is_some(), "{error:?}");
    assert!(error.to_string().contains(part), "{error}");
}

fn log(bytes: usize) -> ReportEvent {
    ReportEvent::Log(LogLine {
        at: Timestamp::now(),
        level: "info".to_owned(),
        source: None,
        message: "x".repeat(bytes),
    })
}

async fn send(
    node: &Client,
    name: &str,
    run: NodeRunId,
    first: u64,
    events: Vec<ReportEvent>,
) -> Result<ReportReceipt, ClientError> {
    let path = format!("/v1/nodes/{name}/reports/{run}/events");
    node.post(&path, &ReportBatch { first, events }).await
}

async fn report(
    server: &TestServer,
    name: &str,
    run: NodeRunId,
) -> Result<ReportSummary, ClientError> {
    let path = format!("/v1/nodes/{name}/reports/{run}");
    server.operator.get(&path).await
}

#[tokio::test]
async fn unfinished_reports_have_a_budget_that_a_restart_does_not_reset() {
    let mut server = TestServer::start_with(|options| {
        options.services.reports.open_per_node = 3;
        options.services.reports.open_bytes_per_node = 4 << 20;
    })
    .await;
    let (web, key) = server.node_with_key("web-1").await;
    let db = server.node("db-1").await;
    let runs: Vec<NodeRunId> = (0..3).map(|_| new_run()).collect();
    for run in &runs {
        send(&web, "web-1", *run, 0, vec![started()])
            .await
            .expect("within budget");
    }
    let refused = send(&web, "web-1", new_run(), 0, vec![started()]).await;
    assert_over_budget(refused, "3 unfinished reports");
    send(&db, "db-1", new_run(), 0, vec![started()])
        .await
        .expect("another node has its own");

    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    let web = server.known_node("web-1", &key).await;
    let refused = send(&web, "web-1", new_run(), 0, vec![started()]).await;
    assert_over_budget(refused, "3 unfinished reports");

    // The end of a run makes room for the next one.
    let end = vec![finished(RunEnding::Succeeded)];
    send(&web, "web-1", runs[0], 1, end)
        .await
        .expect("an end is always accepted");
    send(&web, "web-1", new_run(), 0, vec![started()])
        .await
        .expect("there is room again");

    // The bytes of all of them count together.
    let mut next = 1;
    let refused = loop {
        match send(&web, "web-1", runs[1], next, vec![log(500_000)]).await {
            Ok(receipt) => next = receipt.next,
            Err(error) => break error,
        }
        assert!(next < 20, "nobody refused it");
    };
    assert_over_budget::<()>(Err(refused), "unfinished reports");
    let end = vec![finished(RunEnding::Succeeded)];
    send(&web, "web-1", runs[1], next, end)
        .await
        .expect("an end is always accepted");
    server.shutdown().await;
}

#[tokio::test]
async fn abandoned_reports_make_room() {
    let mut server = TestServer::start_with(|options| {
        options.services.reports.open_per_node = 2;
        options.services.reports.abandoned_after = std::time::Duration::ZERO;
    })
    .await;
    let web = server.node("web-1").await;
    let runs: Vec<NodeRunId> = (0..5).map(|_| new_run()).collect();
    for run in &runs {
        send(&web, "web-1", *run, 0, vec![started()])
            .await
            .expect("the oldest gives way");
    }
    for (index, run) in runs.iter().enumerate() {
        let is_kept = report(&server, "web-1", *run).await.is_ok();
        assert_eq!(is_kept, index >= 3, "report {index}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_report_that_is_too_large_only_counts_further_events_and_still_ends() {
    let mut server = TestServer::start_with(|options| {
        options.services.reports.bytes_per_report = 100_000;
    })
    .await;
    let web = server.node("web-1").await;
    let run = new_run();
    send(&web, "web-1", run, 0, vec![started(), log(200_000)])
        .await
        .expect("stored");
    for first in [2, 4, 6] {
        let events = vec![log(200_000), resource("/a", EventStatus::Changed)];
        send(&web, "web-1", run, first, events)
            .await
            .expect("counted");
    }
    send(&web, "web-1", run, 8, vec![finished(RunEnding::Succeeded)])
        .await
        .expect("ended");
    let summary = report(&server, "web-1", run).await.expect("a report");
    assert_eq!(summary.omitted, 6);
    assert_eq!(
        summary.finished.map(|end| end.ending),
        Some(RunEnding::Succeeded)
    );
    server.shutdown().await;
}

#[tokio::test]
async fn the_oldest_reports_go_when_a_node_stores_too_many_bytes() {
    let mut server = TestServer::start_with(|options| {
        options.services.reports.bytes_per_node = 1_000_000;
    })
    .await;
    let web = server.node("web-1").await;
    let runs: Vec<NodeRunId> = (0..4).map(|_| new_run()).collect();
    for run in &runs {
        let events = vec![started(), log(400_000), finished(RunEnding::Succeeded)];
        send(&web, "web-1", *run, 0, events).await.expect("stored");
    }
    // Old ones are deleted after the reply.
    eventually(async || report(&server, "web-1", runs[1]).await.is_err()).await;
    report(&server, "web-1", runs[3])
        .await
        .expect("the newest is there");
    server.shutdown().await;
}

#[tokio::test]
async fn outputs_beyond_the_budget_have_no_value() {
    let mut server = TestServer::start().await;
    let web = server.node("web-1").await;
    let run = new_run();
    send(&web, "web-1", run, 0, vec![started()])
        .await
        .expect("stored");
    for number in 0..80 {
        let mut event = resource(&format!("/o{number}"), EventStatus::Changed);
        if let ReportEvent::Resource(resource) = &mut event {
            resource
                .outputs
                .insert("text".to_owned(), "x".repeat(60_000).into());
        }
        send(&web, "web-1", run, number + 1, vec![event])
            .await
            .expect("stored");
    }
    let prefix = bunraku_control::keys::node_outputs(&crate::support::name("web-1"));
    let stored = bunraku_control::document::read_all(&*server.shared, &prefix).await;
    let stored = stored.expect("outputs");
    let bytes: usize = stored.iter().map(|entry| entry.value.len()).sum();
    assert_eq!(stored.len(), 80);
    assert!(bytes < 5 << 20, "{bytes}");
    let withheld = (stored.iter())
        .filter(|entry| String::from_utf8_lossy(&entry.value).contains("exceed the limit"));
    assert!(withheld.count() > 5);
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_that_sends_too_much_waits_while_others_and_operators_do_not() {
    let mut server = TestServer::start_with(|options| {
        options.services.rates = RateOptions {
            requests_per_second: 1,
            request_burst: 5,
            bytes_per_second: 1_000,
            byte_burst: 100_000,
        };
    })
    .await;
    let (web, db) = (server.node("web-1").await, server.node("db-1").await);
    let submit = async |node: &Client, name: &str, number: usize, bytes: usize| {
        let facts = json!({"number": number, "text": "x".repeat(bytes)});
        let path = format!("/v1/nodes/{name}/facts");
        node.put::<_, Value>(&path, &facts).await
    };
    // Too many requests.
    let mut refused = None;
    for number in 0..200 {
        if let Err(error) = submit(&web, "web-1", number, 0).await {
            refused = Some(error);
            break;
        }
    }
    assert_over_budget::<()>(Err(refused.expect("refused")), "more than its budget");
    // Too many bytes.
    submit(&db, "db-1", 0, 99_000)
        .await
        .expect("a burst passes");
    assert_over_budget(submit(&db, "db-1", 1, 99_000).await, "more than its budget");
    // Reads and operators are not limited.
    for _ in 0..20 {
        let _: Value = web.get("/v1/nodes/web-1/facts").await.expect("facts");
        server.token(None).await;
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_has_a_limited_number_of_lock_sessions() {
    let mut server = TestServer::start().await;
    let (web, db) = (server.node("web-1").await, server.node("db-1").await);
    let define = json!({"slots": 200, "may_hold": ["*"]});
    let defined = server.operator.put::<_, ()>("/v1/locks/backup", &define);
    defined.await.expect("defined");
    let acquire = async |node: &Client, session: usize| {
        let request = json!({
            "session": format!("s{session}"), "lease_seconds": 600, "slots": 200,
        });
        node.post::<_, Value>("/v1/locks/backup/acquire", &request)
            .await
    };
    for session in 0..100 {
        acquire(&web, session).await.expect("within budget");
    }
    assert_over_budget(acquire(&web, 100).await, "100 sessions");
    acquire(&web, 7).await.expect("a session that it has");
    acquire(&db, 0).await.expect("another node has its own");
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_may_define_a_limited_number_of_once_tasks() {
    let mut server = TestServer::start().await;
    let web = server.node("web-1").await;
    let define = async |caller: &Client, number: usize| {
        let path = format!("/v1/once/app_{number}/definition");
        let request = json!({"definition": {"command": "true"}});
        caller.put::<_, Value>(&path, &request).await
    };
    for number in 0..=100 {
        server.permit(&format!("once/app_{number}")).await;
    }
    for number in 0..100 {
        define(&web, number).await.expect("within budget");
    }
    assert_over_budget(define(&web, 100).await, "100 once tasks");
    define(&web, 7).await.expect("a task that it has defined");
    define(&server.operator, 100)
        .await
        .expect("operators have no limit");
    server.shutdown().await;
}

/// A store that says how full it is.
struct Filling {
    inner: SharedStore,
    percentage: AtomicU8,
}

impl Overlay for Filling {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    fn used_percentage(&self) -> Option<u8> {
        Some(self.percentage.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn the_last_part_of_the_datastore_is_for_operators() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let path = directory.path().join("store");
    let inner =
        bunraku_store::EmbeddedStore::open(&path, bunraku_store::EmbeddedOptions::default());
    let store = Arc::new(Filling {
        inner: Arc::new(inner.await.expect("a store")),
        percentage: AtomicU8::new(95),
    });
    let options = crate::support::options(directory.path());
    let mut server =
        TestServer::on_shared_store(directory, options, store.clone() as SharedStore).await;
    let web = server.node("web-1").await;
    let facts = json!({"number": 1});
    let _: Value = web
        .put("/v1/nodes/web-1/facts", &facts)
        .await
        .expect("there is room");
    store.percentage.store(96, Ordering::SeqCst);
    let refused = web.put::<_, Value>("/v1/nodes/web-1/facts", &facts).await;
    assert_over_budget(refused, "the rest is for operators");
    server.token(None).await;
    server.shutdown().await;
}
