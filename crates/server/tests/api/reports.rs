//! Reports: stored once, in order, despite interruptions.

use std::time::Duration;

use bunraku_control::{NodeRunNews, Reports};
use bunraku_model::NodeRunId;
use bunraku_wire::Client;
use bunraku_wire::api::{
    Cause, EventStatus, LogLine, NodeQueue, NumberedEvent, QueueEntry, QueueReport, ReportBatch,
    ReportEvent, ReportPage, ReportReceipt, ReportState, ReportStreamMessage, ReportSummary,
    ResourceEvent, RunEnding, RunFinished, RunMode, RunStarted, RunSubject,
};
use bunraku_wire::client::{ClientError, Lines};
use jiff::Timestamp;
use uuid::Uuid;

use crate::support::{TestServer, eventually, open_stream, soon, status};

pub(crate) fn new_run() -> NodeRunId {
    NodeRunId(Uuid::now_v7())
}

pub(crate) fn started() -> ReportEvent {
    ReportEvent::Started(RunStarted {
        causes: vec![Cause::Schedule],
        resources: 3,
        ..RunStarted::new(Timestamp::now(), RunMode::Enforce, "engine")
    })
}

pub(crate) fn resource(title: &str, status: EventStatus) -> ReportEvent {
    ReportEvent::Resource(Box::new(ResourceEvent {
        duration_seconds: 0.1,
        message: (status == EventStatus::Failed).then(|| "no such directory".to_owned()),
        register: Some(title.trim_start_matches('/').to_owned()),
        outputs: [("title".to_owned(), title.into())].into_iter().collect(),
        ..ResourceEvent::new(Timestamp::now(), "File", title, status)
    }))
}

fn log(message: &str) -> ReportEvent {
    ReportEvent::Log(LogLine {
        at: Timestamp::now(),
        level: "info".to_owned(),
        source: None,
        message: message.to_owned(),
    })
}

pub(crate) fn finished(ending: RunEnding) -> ReportEvent {
    ReportEvent::Finished(RunFinished {
        duration_seconds: 1.0,
        unchanged: 1,
        changed: 1,
        failed: u64::from(ending == RunEnding::Failed),
        ..RunFinished::new(Timestamp::now(), ending)
    })
}

pub(crate) async fn send(
    node: &Client,
    run: NodeRunId,
    first: u64,
    events: Vec<ReportEvent>,
) -> Result<ReportReceipt, ClientError> {
    let path = format!("/v1/nodes/web-1/reports/{run}/events");
    node.post(&path, &ReportBatch { first, events }).await
}

pub(crate) async fn whole(node: &Client, run: NodeRunId, ending: RunEnding) {
    let events = vec![
        started(),
        resource("/a", EventStatus::Changed),
        finished(ending),
    ];
    let receipt = send(node, run, 0, events).await.expect("stored");
    assert_eq!(
        receipt,
        ReportReceipt {
            next: 3,
            finished: true
        }
    );
}

pub(crate) async fn events(server: &TestServer, run: NodeRunId, from: u64) -> Vec<NumberedEvent> {
    let path = format!("/v1/nodes/web-1/reports/{run}/events?from={from}");
    let mut lines: Lines<NumberedEvent> = server.operator.stream(&path).await.expect("events");
    let mut all = Vec::new();
    while let Some(event) = soon(lines.next()).await {
        all.push(event.expect("an event"));
    }
    all
}

async fn list(server: &TestServer, query: &str) -> Vec<ReportSummary> {
    let page: ReportPage = server
        .operator
        .get(&format!("/v1/reports?{query}"))
        .await
        .expect("a list");
    page.reports
}

#[tokio::test]
async fn events_are_stored_once_however_often_and_in_whatever_order_batches_come() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let run = new_run();
    let all: Vec<ReportEvent> = std::iter::once(started())
        .chain((0..40).map(|number| log(&number.to_string())))
        .chain([finished(RunEnding::Succeeded)])
        .collect();
    let early = send(&node, run, 5, all[5..9].to_vec()).await;
    let error = early.expect_err("a gap");
    assert_eq!(
        (error.status(), error.expected_number()),
        (Some(409), Some(0))
    );
    // Overlapping batches, several at once, each sent twice.
    let spans = [(0, 10), (5, 20), (0, 42), (18, 30), (29, 42), (41, 42)];
    let mut sent = Vec::new();
    for (first, end) in spans.into_iter().chain(spans) {
        let (node, events) = (node.clone(), all[first..end].to_vec());
        sent.push(tokio::spawn(async move {
            send(&node, run, first as u64, events).await
        }));
    }
    for outcome in sent {
        match soon(outcome).await.expect("no panic") {
            Ok(receipt) => assert!(receipt.next <= 42),
            Err(error) => assert!(error.expected_number().is_some(), "{error}"),
        }
    }
    let last = send(&node, run, 0, all.clone()).await.expect("nothing new");
    assert_eq!((last.next, last.finished), (42, true));
    let stored = events(&server, run, 0).await;
    let numbers: Vec<u64> = stored.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (0..42).collect::<Vec<_>>());
    let stored: Vec<ReportEvent> = stored.into_iter().map(|event| event.event).collect();
    assert_eq!(stored, all);
    assert_eq!(events(&server, run, 39).await.len(), 3);
    server.shutdown().await;
}

#[tokio::test]
async fn a_finished_report_is_put_into_one_piece_and_reads_the_same() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let run = new_run();
    send(&node, run, 0, vec![started()]).await.expect("stored");
    send(&node, run, 1, vec![long_event("/a")])
        .await
        .expect("stored");
    let before = events(&server, run, 0).await;
    assert_eq!(chunks(&server).await, 2);
    send(&node, run, 2, vec![finished(RunEnding::Succeeded)])
        .await
        .expect("stored");
    eventually(async || chunks(&server).await == 0).await;
    let after = events(&server, run, 0).await;
    assert_eq!(after[..2], before[..]);
    assert_eq!(after.len(), 3);
    // After a shutdown and a restart, everything is still stored.
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    assert_eq!(events(&server, run, 0).await, after);
    server.shutdown().await;
}

/// An event that is too long for its report to stay in batches.
fn long_event(title: &str) -> ReportEvent {
    match resource(title, EventStatus::Changed) {
        ReportEvent::Resource(mut event) => {
            event.message = Some("a long story ".repeat(1_000));
            ReportEvent::Resource(event)
        }
        other => other,
    }
}

async fn chunks(server: &TestServer) -> usize {
    let range = bunraku_store::Range::prefix(bunraku_control::keys::REPORT_EVENTS);
    let page = bunraku_store::Store::range(server.store(), range).await;
    page.expect("readable").items.len()
}

#[tokio::test]
async fn lists_distinguish_failed_unfinished_and_lost_runs() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let stream = open_stream(&node, "web-1").await;
    let (good, bad, open) = (new_run(), new_run(), new_run());
    whole(&node, good, RunEnding::Succeeded).await;
    let failing = vec![
        started(),
        resource("/b", EventStatus::Failed),
        finished(RunEnding::Failed),
    ];
    send(&node, bad, 0, failing).await.expect("stored");
    send(&node, open, 0, vec![started()]).await.expect("stored");
    let runs = |reports: Vec<ReportSummary>| -> Vec<NodeRunId> {
        reports.iter().map(|report| report.run).collect()
    };
    assert_eq!(runs(list(&server, "").await), [open, bad, good]);
    assert_eq!(runs(list(&server, "node=web-1").await), [open, bad, good]);
    assert_eq!(runs(list(&server, "failed=true").await), [bad]);
    assert_eq!(
        list(&server, "failed=true").await[0].failures[0].resource,
        "File[/b]"
    );
    let unfinished = list(&server, "unfinished=true").await;
    assert_eq!(unfinished[0].state, ReportState::Running);
    assert_eq!(runs(unfinished), [open]);
    let page: ReportPage = server
        .operator
        .get("/v1/reports?limit=2")
        .await
        .expect("a page");
    let next = page.next.expect("there is more");
    let rest = list(&server, &format!("limit=2&after={next}")).await;
    assert_eq!(runs(rest), [good]);
    drop(stream);
    eventually(async || list(&server, "unfinished=true").await[0].state == ReportState::Lost).await;
    assert_eq!(runs(list(&server, "failed=true").await), [open, bad]);
    let found: ReportSummary = server
        .operator
        .get(&format!("/v1/reports/{}", &bad.to_string()[..36]))
        .await
        .expect("found");
    assert_eq!(found.run, bad);
    let missing: Result<ReportSummary, _> = server.operator.get("/v1/reports/zzz").await;
    assert_eq!(status(missing), 404);
    server.shutdown().await;
}

#[tokio::test]
async fn a_request_that_was_folded_into_another_run_leads_to_its_report() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let (run, folded) = (new_run(), new_run());
    let mut first = started();
    if let ReportEvent::Started(started) = &mut first {
        started.also = vec![folded];
    }
    send(&node, run, 0, vec![first]).await.expect("stored");
    let found: ReportSummary = server
        .operator
        .get(&format!("/v1/reports/{folded}"))
        .await
        .expect("found");
    assert_eq!(found.run, run);
    server.shutdown().await;
}

#[tokio::test]
async fn following_a_run_gives_each_event_once_and_continues_after_a_break() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let commands = open_stream(&node, "web-1").await;
    let run = new_run();
    let path = format!("/v1/nodes/web-1/reports/{run}/stream");
    // Follow before there are any events.
    let mut lines: Lines<NumberedEvent> = server.operator.stream(&path).await.expect("a stream");
    send(&node, run, 0, vec![started()]).await.expect("stored");
    let first = soon(lines.next()).await.expect("a line").expect("an event");
    assert_eq!(first.number, 0);
    drop(lines);
    send(&node, run, 1, vec![log("a"), log("b")])
        .await
        .expect("stored");
    let mut lines: Lines<NumberedEvent> = server
        .operator
        .stream(&format!("{path}?from=1"))
        .await
        .expect("a stream");
    for number in [1, 2] {
        let event = soon(lines.next()).await.expect("a line").expect("an event");
        assert_eq!(event.number, number);
    }
    send(&node, run, 3, vec![finished(RunEnding::Succeeded)])
        .await
        .expect("stored");
    let last = soon(lines.next()).await.expect("a line").expect("an event");
    assert!(matches!(last.event, ReportEvent::Finished(_)));
    assert!(soon(lines.next()).await.is_none(), "the run is over");
    // The node is lost in the middle of another run.
    let run = new_run();
    send(&node, run, 0, vec![started()]).await.expect("stored");
    let path = format!("/v1/nodes/web-1/reports/{run}/stream?from=1");
    let mut lines: Lines<NumberedEvent> = server.operator.stream(&path).await.expect("a stream");
    drop(commands);
    assert!(soon(lines.next()).await.is_none(), "nobody can say more");
    server.shutdown().await;
}

#[tokio::test]
async fn all_events_continue_from_a_cursor_across_a_restart_of_the_server() {
    let mut server = TestServer::start().await;
    let (node, key) = server.node_with_key("web-1").await;
    let run = new_run();
    let mut lines: Lines<ReportStreamMessage> = server
        .operator
        .stream("/v1/reports/stream")
        .await
        .expect("a stream");
    let opened = soon(lines.next())
        .await
        .expect("a line")
        .expect("a message");
    assert!(matches!(opened, ReportStreamMessage::Open { .. }));
    send(&node, run, 0, vec![started()]).await.expect("stored");
    let Some(Ok(ReportStreamMessage::Events { cursor, events, .. })) = soon(lines.next()).await
    else {
        panic!("events were expected");
    };
    assert_eq!(events.len(), 1);
    drop((lines, node));
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    let request = bunraku_wire::Request::create(&crate::support::name("web-1"), &key);
    let reply = server.join(&request.expect("a request"), None).await;
    let bunraku_wire::api::JoinReply::Signed { certificate, .. } = reply.expect("known") else {
        panic!("known");
    };
    let node = server.client_with(&certificate, &key);
    send(&node, run, 1, vec![log("missed")])
        .await
        .expect("stored");
    let mut lines: Lines<ReportStreamMessage> = server
        .operator
        .stream(&format!("/v1/reports/stream?cursor={cursor}&node=web-1"))
        .await
        .expect("a stream");
    let Some(Ok(ReportStreamMessage::Events { events, .. })) = soon(lines.next()).await else {
        panic!("events were expected");
    };
    assert_eq!(events[0].event, log_of(&events[0].event, "missed"));
    server.shutdown().await;
}

/// Returns the expected log line, with the time of `event`.
fn log_of(event: &ReportEvent, message: &str) -> ReportEvent {
    let mut wanted = log(message);
    if let (ReportEvent::Log(wanted), ReportEvent::Log(event)) = (&mut wanted, event) {
        wanted.at = event.at;
    }
    wanted
}

#[tokio::test]
async fn old_reports_of_a_node_are_removed_beyond_the_limit() {
    let mut server = TestServer::start_with(|options| {
        options.services.reports.kept_per_node = 3;
        options.services.upkeep.collect_every = Duration::from_millis(100);
    })
    .await;
    let node = server.node("web-1").await;
    let runs: Vec<NodeRunId> = (0..6).map(|_| new_run()).collect();
    for run in &runs {
        whole(&node, *run, RunEnding::Succeeded).await;
    }
    eventually(async || list(&server, "").await.len() == 3).await;
    let kept: Vec<NodeRunId> = list(&server, "")
        .await
        .iter()
        .map(|report| report.run)
        .collect();
    assert_eq!(kept, [runs[5], runs[4], runs[3]]);
    let gone: Result<ReportSummary, _> = server
        .operator
        .get(&format!("/v1/reports/{}", runs[0]))
        .await;
    assert_eq!(status(gone), 404);
    let (directory, mut options) = (server.directory(), server.options());
    server.shutdown().await;
    options.services.reports.kept_for = Duration::from_millis(1);
    let mut server = TestServer::open(directory, options).await;
    eventually(async || list(&server, "").await.is_empty()).await;
    assert_eq!(chunks(&server).await, 0);
    server.shutdown().await;
}

#[tokio::test]
async fn a_removed_node_takes_its_reports_along() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    whole(&node, new_run(), RunEnding::Succeeded).await;
    send(&node, new_run(), 0, vec![started()])
        .await
        .expect("stored");
    server
        .operator
        .delete::<()>("/v1/nodes/web-1")
        .await
        .expect("removed");
    assert!(list(&server, "").await.is_empty());
    assert!(list(&server, "unfinished=true").await.is_empty());
    server.shutdown().await;
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_refused_clearly() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let run = new_run();
    send(&node, run, 0, vec![started()]).await.expect("stored");
    let large = send(&node, run, 1, vec![log(&"x".repeat(2 << 20))]).await;
    let error = large.expect_err("too large");
    assert_eq!(error.status(), Some(413), "{error}");
    assert!(error.to_string().contains("bytes"), "{error}");
    // Smaller batches are still accepted.
    send(&node, run, 1, vec![log("small")])
        .await
        .expect("stored");
    server.shutdown().await;
}

/// Returns the report service without a server around it.
fn reports_of(server: &TestServer) -> Reports {
    let store: bunraku_store::SharedStore = std::sync::Arc::new(server.store().clone());
    let blobs = bunraku_store::blobs::StoreBlobs::in_store(store.clone(), Default::default());
    Reports::new(
        store,
        std::sync::Arc::new(blobs),
        bunraku_control::Clock::system(),
        Default::default(),
    )
}

#[tokio::test]
async fn upkeep_finishes_what_a_crash_left_between_the_last_event_and_the_one_piece() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    let web = crate::support::name("web-1");
    let (over, at_work) = (new_run(), new_run());
    // Stored without the server's follow-up work, as if it had died at that point.
    let reports = reports_of(&server);
    let changed = long_event("/a");
    let all = vec![started(), changed.clone(), finished(RunEnding::Succeeded)];
    for (run, events) in [(over, all.clone()), (at_work, vec![started(), changed])] {
        let batch = ReportBatch { first: 0, events };
        reports.take(&web, run, batch).await.expect("stored");
    }
    drop(reports);
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    eventually(async || chunks(&server).await == 1).await;
    let open = bunraku_store::Range::prefix(bunraku_control::keys::OPEN_REPORTS);
    let open = bunraku_store::Store::range(server.store(), open).await;
    let open: Vec<String> = (open.expect("readable").items.into_iter())
        .map(|entry| entry.key)
        .collect();
    let left = bunraku_control::keys::open_report(&web, at_work);
    assert_eq!(open, [left], "only the run in progress is open");
    let stored = events(&server, over, 0).await;
    let stored: Vec<ReportEvent> = stored.into_iter().map(|event| event.event).collect();
    assert_eq!(stored, all);
    assert_eq!(events(&server, at_work, 0).await.len(), 2);
    server.shutdown().await;
}

#[tokio::test]
async fn a_waiter_for_runs_gets_each_start_and_end_once() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let reports = reports_of(&server);
    let (before, meanwhile, other) = (new_run(), new_run(), new_run());
    whole(&node, before, RunEnding::Failed).await;
    whole(&node, other, RunEnding::Succeeded).await;
    let web = crate::support::name("web-1");
    let mut news = reports.subscribe([(web.clone(), before), (web.clone(), meanwhile)]);
    let started_news = soon(news.next()).await.expect("news");
    assert!(matches!(started_news, NodeRunNews::Started { run, .. } if run == before));
    let ended = soon(news.next()).await.expect("news");
    assert!(
        matches!(&ended, NodeRunNews::Finished { run, finished, .. } if *run == before && finished.ending == RunEnding::Failed)
    );
    send(&node, meanwhile, 0, vec![started()])
        .await
        .expect("stored");
    let next = soon(news.next()).await.expect("news");
    assert!(matches!(next, NodeRunNews::Started { run, .. } if run == meanwhile));
    let changed = resource("/a", EventStatus::Changed);
    send(&node, meanwhile, 1, vec![changed])
        .await
        .expect("stored");
    let next = soon(news.next()).await.expect("news");
    assert!(matches!(next, NodeRunNews::Progress { counts, .. } if counts.changed == 1));
    let end = finished(RunEnding::Succeeded);
    send(&node, meanwhile, 2, vec![end.clone()])
        .await
        .expect("stored");
    send(&node, meanwhile, 2, vec![end]).await.expect("known");
    let next = soon(news.next()).await.expect("news");
    assert!(matches!(next, NodeRunNews::Finished { run, .. } if run == meanwhile));
    // No further news: the compaction that follows is not reported.
    let more = tokio::time::timeout(Duration::from_millis(300), news.next()).await;
    assert!(more.is_err(), "{more:?}");
    let outputs: Vec<NumberedEvent> = events(&server, meanwhile, 0).await;
    assert_eq!(outputs.len(), 3);
    server.shutdown().await;
}

#[tokio::test]
async fn a_queue_is_shown_as_its_node_reported_it() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let none: Result<NodeQueue, _> = server.operator.get("/v1/nodes/web-1/queue").await;
    assert_eq!(status(none), 404);
    let queue = QueueReport {
        running: Some(QueueEntry {
            run: new_run(),
            subject: RunSubject::Released,
            mode: None,
            causes: vec![Cause::Schedule],
            more_causes: 7,
            queued: Timestamp::now(),
            started: Some(Timestamp::now()),
        }),
        ..QueueReport::default()
    };
    node.put::<_, ()>("/v1/nodes/web-1/queue", &queue)
        .await
        .expect("told");
    let text: NodeQueue = server
        .operator
        .get("/v1/nodes/web-1/queue")
        .await
        .expect("told");
    assert_eq!(text.queue, queue);
    server.shutdown().await;
}

/// Ids of runs are chosen by those who request them. A node that knows one cannot take it over.
#[tokio::test]
async fn a_report_cannot_be_redirected_to_another_node() {
    let mut server = TestServer::start().await;
    let (own, other) = (server.node("web-1").await, server.node("web-2").await);
    let run = new_run();
    whole(&own, run, RunEnding::Succeeded).await;
    let found = async |id: NodeRunId| -> Result<ReportSummary, ClientError> {
        server.operator.get(&format!("/v1/reports/{id}")).await
    };
    let report = async |id: NodeRunId, also: Vec<NodeRunId>| {
        let started = ReportEvent::Started(RunStarted {
            also,
            ..RunStarted::new(Timestamp::now(), RunMode::Enforce, "engine")
        });
        let path = format!("/v1/nodes/web-2/reports/{id}/events");
        let events = vec![started, finished(RunEnding::Failed)];
        let batch = ReportBatch { first: 0, events };
        let sent = other.post::<_, ReportReceipt>(&path, &batch).await;
        sent.expect("stored");
    };
    // As an id that its run also served.
    let another = new_run();
    report(another, vec![run]).await;
    let text = found(run).await.expect_err("both claim it").to_string();
    assert!(
        text.contains("`web-1` and `web-2` both report run"),
        "{text}"
    );
    assert_eq!(
        found(another).await.expect("its own").node.as_str(),
        "web-2"
    );
    // As the id of its own run.
    let second = new_run();
    whole(&own, second, RunEnding::Succeeded).await;
    report(second, Vec::new()).await;
    assert_eq!(status(found(second).await), 409);
    // An id that nobody else claims is found as before, and deleting the claims of the other
    // node leaves what is not its own.
    let third = new_run();
    whole(&own, third, RunEnding::Succeeded).await;
    server
        .operator
        .delete::<()>("/v1/nodes/web-2")
        .await
        .expect("removed");
    for id in [run, second, third] {
        let path = format!("/v1/nodes/web-1/reports/{id}");
        let shown: ReportSummary = server.operator.get(&path).await.expect("its report");
        assert_eq!(shown.node.as_str(), "web-1");
    }
    assert_eq!(found(third).await.expect("its own").node.as_str(), "web-1");
    server.shutdown().await;
}
