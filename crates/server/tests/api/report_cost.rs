//! The number of writes, keys and bytes that a report costs.

use std::sync::Arc;

use bunraku_control::Reports;
use bunraku_model::NodeRunId;
use bunraku_store::blobs::StoreBlobs;
use bunraku_store::testing::{Overlay, WriteCounter};
use bunraku_store::{Range, SharedStore};
use bunraku_wire::api::{
    Cause, EventStatus, ReportBatch, ReportEvent, ResourceEvent, RunEnding, RunFinished, RunStarted,
};
use jiff::Timestamp;

use crate::reports::{finished, new_run, started};
use crate::support::{TestServer, name};

fn counted(server: &TestServer) -> (Arc<WriteCounter>, Reports) {
    let counter = Arc::new(WriteCounter::new(Arc::new(server.store().clone())));
    let store: SharedStore = counter.clone();
    let blobs = Arc::new(StoreBlobs::in_store(store.clone(), Default::default()));
    let clock = bunraku_control::Clock::system();
    let reports = Reports::new(store, blobs, clock, Default::default());
    (counter, reports)
}

fn unchanged(number: usize) -> ReportEvent {
    let title = format!("/etc/app/{number}.conf");
    let status = EventStatus::Unchanged;
    ReportEvent::Resource(Box::new(ResourceEvent::new(
        Timestamp::now(),
        "File",
        &title,
        status,
    )))
}

/// Returns all keys under these prefixes with the size of their values.
async fn stored(store: &SharedStore, prefixes: &[&str]) -> Vec<(String, usize)> {
    let mut all = Vec::new();
    for prefix in prefixes {
        let page = store.range(Range::prefix(*prefix)).await.expect("readable");
        let sizes = page.items.into_iter().map(|it| (it.key, it.value.len()));
        all.extend(sizes);
    }
    all
}

const PLACES: [&str; 6] = [
    "reports/",
    "report-events/",
    "report-packed/",
    "report-times/",
    "report-ids/",
    "open-reports/",
];

/// Stores a report in batches, and settles it.
async fn take(reports: &Reports, run: NodeRunId, batches: Vec<Vec<ReportEvent>>) {
    let web = name("web-1");
    let mut first = 0;
    for events in batches {
        let width = events.len() as u64;
        let batch = ReportBatch { first, events };
        let taken = reports.take(&web, run, batch).await.expect("stored");
        first += width;
        if taken.needs_settling {
            reports.settle(&web, run).await.expect("settled");
        }
    }
}

fn scheduled() -> ReportEvent {
    match started() {
        ReportEvent::Started(started) => ReportEvent::Started(RunStarted {
            causes: vec![Cause::Schedule],
            ..started
        }),
        other => other,
    }
}

fn all_unchanged() -> ReportEvent {
    ReportEvent::Finished(RunFinished {
        unchanged: 100,
        ..RunFinished::new(Timestamp::now(), RunEnding::Succeeded)
    })
}

#[tokio::test]
async fn a_report_with_a_hundred_events_is_three_writes_and_no_blob() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    let (counter, reports) = counted(&server);
    let (web, run) = (name("web-1"), new_run());
    // The agent sends the first event at once, and the rest when the run is over.
    let mut rest: Vec<ReportEvent> = (0..100).map(unchanged).collect();
    rest.push(finished(RunEnding::Succeeded));
    take(&reports, run, vec![vec![started()], rest]).await;
    assert_eq!(counter.take(), 3);
    let blobs = ["blobs/", "blob-chunks/", "blob-refs/", "report-events/"];
    assert_eq!(stored(counter.inner(), &blobs).await, []);
    let kept = stored(counter.inner(), &PLACES).await;
    assert_eq!(kept.len(), 4, "{kept:?}");
    let bytes: usize = kept.iter().map(|(key, size)| key.len() + size).sum();
    assert!(bytes < 5_000, "{kept:?}");

    let events = reports.events(&web, run, 0).await.expect("readable");
    assert_eq!(events.len(), 102);
    let events = reports.events(&web, run, 100).await.expect("readable");
    assert_eq!(events.len(), 2);
    reports.forget(&web).await.expect("deleted");
    assert_eq!(stored(counter.inner(), &PLACES).await, []);
    server.shutdown().await;
}

#[tokio::test]
async fn a_small_report_is_one_write_if_it_comes_as_a_whole_and_two_otherwise() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    let (counter, reports) = counted(&server);
    let web = name("web-1");
    let whole = new_run();
    take(&reports, whole, vec![vec![started(), all_unchanged()]]).await;
    assert_eq!(counter.take(), 1);
    let parts = new_run();
    let batches = vec![vec![started()], vec![unchanged(1), all_unchanged()]];
    take(&reports, parts, batches).await;
    assert_eq!(counter.take(), 2);
    assert_eq!(stored(counter.inner(), &["open-reports/"]).await, []);
    for (run, count) in [(whole, 2), (parts, 3)] {
        let events = reports.events(&web, run, 0).await.expect("readable");
        assert_eq!(events.len(), count);
    }
    reports.forget(&web).await.expect("deleted");
    assert_eq!(stored(counter.inner(), &PLACES).await, []);
    server.shutdown().await;
}

#[tokio::test]
async fn a_thousand_equal_runs_of_the_schedule_are_one_report_and_a_write_each() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    let (counter, reports) = counted(&server);
    let web = name("web-1");
    let mut newest = None;
    for _ in 0..1_000 {
        let run = new_run();
        take(&reports, run, vec![vec![scheduled(), all_unchanged()]]).await;
        newest = Some(run);
    }
    assert_eq!(counter.take(), 1_000);
    // The reply to the last one was lost.
    let last = newest.expect("some");
    take(&reports, last, vec![vec![scheduled(), all_unchanged()]]).await;
    assert_eq!(counter.take(), 0);
    let kept = stored(counter.inner(), &PLACES).await;
    let bytes: usize = kept.iter().map(|(key, size)| key.len() + size).sum();
    assert!(bytes < 2_000, "{kept:?}");
    let head = reports.newest_of(&web).await.expect("readable");
    let repeats = head.expect("a report").repeats.expect("repeats");
    assert_eq!((repeats.count, repeats.run), (999, last));

    // An event ends the row, and the run after it begins another one.
    for batch in [
        vec![scheduled(), unchanged_with(1, "a note"), all_unchanged()],
        vec![scheduled(), all_unchanged()],
    ] {
        take(&reports, new_run(), vec![batch]).await;
    }
    let kept = stored(counter.inner(), &["reports/"]).await;
    assert_eq!(kept.len(), 3, "{kept:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn the_events_of_a_large_report_are_a_blob() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    let (counter, reports) = counted(&server);
    let (web, run) = (name("web-1"), new_run());
    let noisy = |number: usize| {
        let text = format!("{}{}", uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        unchanged_with(number, &text)
    };
    let mut events = vec![started()];
    events.extend((0..600).map(noisy));
    events.push(finished(RunEnding::Succeeded));
    let batch = ReportBatch { first: 0, events };
    reports.take(&web, run, batch).await.expect("stored");
    reports.settle(&web, run).await.expect("settled");
    assert_eq!(stored(counter.inner(), &["report-packed/"]).await, []);
    assert_eq!(stored(counter.inner(), &["blobs/"]).await.len(), 1);
    let events = reports.events(&web, run, 0).await.expect("readable");
    assert_eq!(events.len(), 602);
    server.shutdown().await;
}

fn unchanged_with(number: usize, message: &str) -> ReportEvent {
    match unchanged(number) {
        ReportEvent::Resource(mut event) => {
            event.message = Some(message.to_owned());
            ReportEvent::Resource(event)
        }
        other => other,
    }
}
