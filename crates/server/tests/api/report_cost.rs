//! The number of writes, keys and bytes that a report costs.

use std::sync::Arc;

use bunraku_control::Reports;
use bunraku_store::blobs::StoreBlobs;
use bunraku_store::testing::{Overlay, WriteCounter};
use bunraku_store::{Range, SharedStore};
use bunraku_wire::api::{EventStatus, ReportBatch, ReportEvent, ResourceEvent, RunEnding};
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

#[tokio::test]
async fn a_report_of_a_hundred_unchanged_resources_is_three_writes_and_no_blob() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    let (counter, reports) = counted(&server);
    let (web, run) = (name("web-1"), new_run());
    // The agent sends the first event at once, and the rest when the run is over.
    let mut rest: Vec<ReportEvent> = (0..100).map(unchanged).collect();
    rest.push(finished(RunEnding::Succeeded));
    for (first, events) in [(0, vec![started()]), (1, rest)] {
        let batch = ReportBatch { first, events };
        reports.take(&web, run, batch).await.expect("stored");
    }
    reports.settle(&web, run).await.expect("settled");
    assert_eq!(counter.take(), 3);
    let blobs = ["blobs/", "blob-chunks/", "blob-refs/", "report-events/"];
    assert_eq!(stored(counter.inner(), &blobs).await, []);
    let places = ["reports/", "report-packed/", "report-times/", "report-ids/"];
    let kept = stored(counter.inner(), &places).await;
    assert_eq!(kept.len(), 4, "{kept:?}");
    let bytes: usize = kept.iter().map(|(key, size)| key.len() + size).sum();
    assert!(bytes < 5_000, "{kept:?}");

    let events = reports.events(&web, run, 0).await.expect("readable");
    assert_eq!(events.len(), 102);
    let events = reports.events(&web, run, 100).await.expect("readable");
    assert_eq!(events.len(), 2);
    reports.forget(&web).await.expect("deleted");
    assert_eq!(stored(counter.inner(), &places).await, []);
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
