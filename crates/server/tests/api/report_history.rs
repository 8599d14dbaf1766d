//! Reports whose history has an engine of its own: SQLite, or a real PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bunraku_control::{Clock, HistoryBackends, HistoryPlace, ReportFilter, ReportOptions, Reports};
use bunraku_model::NodeRunId;
use bunraku_store::blobs::StoreBlobs;
use bunraku_store::history::postgresql::{PostgresqlHistory, PostgresqlOptions};
use bunraku_store::history::{
    Appended, EventChunk, FoundRecord, History, HistoryAppend, HistoryError, HistoryFilter,
    HistoryPage, HistoryPart, HistoryRecord, RecordId, SharedHistory, SqliteHistory,
};
use bunraku_store::testing::{MemoryHistory, MemoryStore, PostgresqlServer};
use bunraku_store::{Range, SharedStore, Store, Transaction};
use bunraku_wire::api::{EventStatus, NumberedEvent, ReportBatch, ReportEvent, RunEnding};
use jiff::{SignedDuration, Timestamp};

use crate::reports::{finished, new_run, resource, send, started};
use crate::support::{TestServer, eventually, metrics, name, options, text_at};

/// A history whose server dies after an append: the append is done, and nobody learns that.
struct DyingHistory {
    inner: MemoryHistory,
    deaths: AtomicUsize,
}

fn dead() -> HistoryError {
    HistoryError::Unavailable {
        backend: "test".to_owned(),
        source: "the server died".into(),
    }
}

#[async_trait::async_trait]
impl History for DyingHistory {
    fn kind(&self) -> &'static str {
        "postgresql"
    }

    async fn append(
        &self,
        transaction: Transaction,
        append: HistoryAppend,
    ) -> Result<(Transaction, Appended), HistoryError> {
        let appended = self.inner.append(transaction, append).await?;
        let left = self.deaths.load(Ordering::SeqCst);
        if left > 0 {
            self.deaths.store(left - 1, Ordering::SeqCst);
            return Err(dead());
        }
        Ok(appended)
    }

    async fn import(
        &self,
        record: HistoryRecord,
        also: Vec<String>,
        events: Vec<EventChunk>,
    ) -> Result<(), HistoryError> {
        self.inner.import(record, also, events).await
    }

    async fn close(&self, record: HistoryRecord) -> Result<(), HistoryError> {
        self.inner.close(record).await
    }

    async fn record(&self, id: &RecordId) -> Result<Option<HistoryRecord>, HistoryError> {
        self.inner.record(id).await
    }

    async fn aliases(&self, record: &HistoryRecord) -> Result<Vec<String>, HistoryError> {
        self.inner.aliases(record).await
    }

    async fn events(
        &self,
        id: &RecordId,
        at: Timestamp,
        from: u64,
    ) -> Result<Vec<EventChunk>, HistoryError> {
        self.inner.events(id, at, from).await
    }

    async fn list(&self, filter: &HistoryFilter) -> Result<HistoryPage, HistoryError> {
        self.inner.list(filter).await
    }

    async fn find(&self, prefix: &str, limit: usize) -> Result<Vec<FoundRecord>, HistoryError> {
        self.inner.find(prefix, limit).await
    }

    async fn remove(&self, id: &RecordId) -> Result<(), HistoryError> {
        self.inner.remove(id).await
    }

    async fn remove_owner(&self, owner: &str) -> Result<(), HistoryError> {
        self.inner.remove_owner(owner).await
    }

    async fn drop_before(
        &self,
        part: HistoryPart,
        before: Timestamp,
    ) -> Result<usize, HistoryError> {
        self.inner.drop_before(part, before).await
    }

    async fn events_since(&self) -> Result<Option<Timestamp>, HistoryError> {
        self.inner.events_since().await
    }

    async fn check(&self, now: Timestamp) -> Result<(), HistoryError> {
        self.inner.check(now).await
    }
}

/// The report service on a store in memory, with two nodes.
struct Stage {
    store: SharedStore,
    reports: Reports,
}

impl Stage {
    async fn new(postgresql: SharedHistory) -> Self {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let nodes = bunraku_control::Nodes::new(store.clone(), Clock::system());
        for node in ["web-1", "web-2"] {
            nodes.register(&name(node)).await.expect("registered");
        }
        let stage = Self::on(store, postgresql, true, Clock::system());
        stage.reports.choose_history().await.expect("chosen");
        stage
    }

    fn on(store: SharedStore, postgresql: SharedHistory, begin: bool, clock: Clock) -> Self {
        let blobs = Arc::new(StoreBlobs::in_store(store.clone(), Default::default()));
        let backends = HistoryBackends {
            embedded: None,
            postgresql: Some(postgresql),
            begin_with_postgresql: begin,
        };
        let reports = Reports::new(
            store.clone(),
            blobs.clone(),
            clock,
            ReportOptions::default(),
        );
        Self {
            reports: reports.with_history(blobs, backends),
            store,
        }
    }

    async fn take(&self, run: NodeRunId, first: u64, events: Vec<ReportEvent>) -> Option<u64> {
        let batch = ReportBatch { first, events };
        let taken = self.reports.take(&name("web-1"), run, batch).await.ok()?;
        if taken.needs_settling {
            let settled = self.reports.settle(&name("web-1"), run).await;
            settled.expect("settled");
        }
        Some(taken.receipt.next)
    }

    async fn whole(&self, run: NodeRunId) {
        let events = vec![started(), changed("/a"), finished(RunEnding::Succeeded)];
        assert_eq!(self.take(run, 0, events).await, Some(3));
    }

    async fn events(&self, run: NodeRunId) -> Vec<u64> {
        let events = self.reports.events(&name("web-1"), run, 0).await;
        numbers(&events.expect("readable"))
    }

    async fn keys(&self, prefix: &str) -> usize {
        let page = self.store.range(Range::prefix(prefix)).await;
        page.expect("readable").items.len()
    }

    async fn listed(&self) -> Vec<NodeRunId> {
        let page = self.reports.list(&everything()).await.expect("readable");
        page.reports.iter().map(|report| report.run).collect()
    }
}

fn numbers(events: &[NumberedEvent]) -> Vec<u64> {
    events.iter().map(|event| event.number).collect()
}

fn changed(title: &str) -> ReportEvent {
    resource(title, EventStatus::Changed)
}

fn everything() -> ReportFilter {
    ReportFilter {
        node: None,
        within: None,
        failed: false,
        unfinished: false,
        limit: 1_000,
        after: None,
    }
}

fn backends(history: impl History) -> HistoryBackends {
    HistoryBackends {
        embedded: None,
        postgresql: Some(Arc::new(history)),
        begin_with_postgresql: true,
    }
}

#[tokio::test]
async fn a_server_that_dies_between_append_and_acknowledgement_loses_and_doubles_nothing() {
    let history = Arc::new(DyingHistory {
        inner: MemoryHistory::new(),
        deaths: AtomicUsize::new(0),
    });
    let stage = Stage::new(history.clone()).await;
    let run = new_run();
    let batches = [
        (0, vec![started()]),
        (1, vec![changed("/a"), changed("/b")]),
        (3, vec![changed("/c"), finished(RunEnding::Succeeded)]),
    ];
    for (first, events) in batches {
        history.deaths.store(2, Ordering::SeqCst);
        for _ in 0..2 {
            assert_eq!(stage.take(run, first, events.clone()).await, None);
        }
        // Nothing that was not acknowledged is visible.
        if first > 0 {
            assert_eq!(stage.events(run).await, (0..first).collect::<Vec<_>>());
        }
        // The agent cuts the batch differently.
        let mut part = events.clone();
        part.truncate(1);
        assert_eq!(stage.take(run, first, part).await, Some(first + 1));
        let next = first + events.len() as u64;
        assert_eq!(stage.take(run, first, events).await, Some(next));
    }
    assert_eq!(stage.events(run).await, [0, 1, 2, 3, 4]);
    assert_eq!(stage.listed().await, [run]);
    assert_eq!(stage.keys("report-open/").await, 0);
    assert_eq!(stage.keys("report-events/").await, 0);
}

#[tokio::test]
async fn the_state_store_keeps_only_the_newest_head_and_late_copies_change_nothing() {
    let stage = Stage::new(Arc::new(MemoryHistory::new())).await;
    let runs: Vec<NodeRunId> = (0..5).map(|_| new_run()).collect();
    for run in &runs {
        stage.whole(*run).await;
    }
    assert_eq!(stage.keys("reports/").await, 1);
    for prefix in [
        "report-times/",
        "report-ids/",
        "report-events/",
        "report-packed/",
    ] {
        assert_eq!(stage.keys(prefix).await, 0, "{prefix}");
    }
    let mut listed = stage.listed().await;
    listed.reverse();
    assert_eq!(listed, runs);
    // A message that was late, with the whole report or its end.
    stage.whole(runs[0]).await;
    let end = vec![finished(RunEnding::Succeeded)];
    assert_eq!(stage.take(runs[1], 2, end).await, Some(3));
    assert_eq!(stage.keys("reports/").await, 1);
    assert_eq!(stage.listed().await.len(), 5);
    for run in &runs {
        assert_eq!(stage.events(*run).await, [0, 1, 2]);
        let found = stage.reports.find(&run.to_string()).await.expect("found");
        assert_eq!(found.run, *run);
    }
    stage.reports.forget(&name("web-1")).await.expect("deleted");
    assert_eq!(stage.listed().await, []);
    assert_eq!(stage.keys("reports/").await, 0);
}

#[tokio::test]
async fn pages_of_one_node_and_of_problems_continue_with_a_cursor() {
    let stage = Stage::new(Arc::new(MemoryHistory::new())).await;
    let mut failed_runs = Vec::new();
    for number in 0..30 {
        let run = new_run();
        let ending = match number % 3 {
            0 => RunEnding::Failed,
            _ => RunEnding::Succeeded,
        };
        let events = vec![started(), changed("/a"), finished(ending)];
        stage.take(run, 0, events).await.expect("stored");
        if ending == RunEnding::Failed {
            failed_runs.push(run);
        }
    }
    for (failed, node, count) in [(false, Some(name("web-1")), 30), (true, None, 10)] {
        let mut filter = ReportFilter {
            failed,
            node,
            limit: 7,
            ..everything()
        };
        let mut seen = Vec::new();
        loop {
            let page = stage.reports.list(&filter).await.expect("readable");
            seen.extend(page.reports.iter().map(|report| report.run));
            filter.after = page.next;
            if filter.after.is_none() {
                break;
            }
        }
        let unique: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!((seen.len(), unique.len()), (count, count));
    }
}

#[tokio::test]
async fn a_report_whose_events_were_deleted_says_so() {
    let history = MemoryHistory::new();
    let stage = Stage::new(Arc::new(history.clone())).await;
    let run = new_run();
    stage.whole(run).await;
    stage.whole(new_run()).await;
    let later = Clock::new(|| {
        let now = Timestamp::now();
        now.checked_add(SignedDuration::from_hours(20 * 24))
            .expect("a time")
    });
    let stage = Stage::on(stage.store, Arc::new(history), true, later);
    assert!(stage.reports.upkeep().await.expect("done") > 0);
    let shown = stage.reports.show(&name("web-1"), run).await.expect("kept");
    assert!(shown.events_deleted_before.is_some());
    assert_eq!(stage.events(run).await, [0; 0]);
    assert_eq!(stage.listed().await.len(), 2);
}

#[tokio::test]
async fn history_moves_there_and_back_while_reports_arrive() {
    let server = PostgresqlServer::start().await;
    let database = server.database("moved").await;
    let postgresql = Arc::new(PostgresqlHistory::new(database).expect("valid settings"));
    let store: SharedStore = Arc::new(MemoryStore::new());
    let nodes = bunraku_control::Nodes::new(store.clone(), Clock::system());
    nodes.register(&name("web-1")).await.expect("registered");
    let stage = Stage::on(store, postgresql, false, Clock::system());
    stage.reports.choose_history().await.expect("chosen");
    let mut runs: Vec<NodeRunId> = Vec::new();
    let check = async |runs: &[NodeRunId]| {
        let mut listed = stage.listed().await;
        listed.reverse();
        assert_eq!(listed, runs);
        for run in runs {
            assert_eq!(stage.events(*run).await, [0, 1, 2]);
            stage.reports.find(&run.to_string()).await.expect("found");
        }
    };
    for _ in 0..5 {
        runs.push(new_run());
        stage.whole(runs[runs.len() - 1]).await;
    }
    for to in [HistoryPlace::Postgresql, HistoryPlace::Store] {
        // A run is in progress.
        let open = new_run();
        stage
            .take(open, 0, vec![started(), changed("/a")])
            .await
            .expect("stored");
        runs.push(open);
        let begun = stage.reports.begin_history_move(to).await.expect("begun");
        assert_eq!((begun.active, begun.from.is_some()), (to, true));
        // It goes on, and another one begins, before anything was copied.
        let end = vec![finished(RunEnding::Succeeded)];
        assert_eq!(stage.take(open, 2, end).await, Some(3));
        runs.push(new_run());
        stage.whole(runs[runs.len() - 1]).await;
        check(&runs).await;
        stage.reports.finish_move().await.expect("moved");
        let state = stage.reports.history_state().await.expect("readable");
        assert_eq!((state.active, state.from, state.outage), (to, None, None));
        check(&runs).await;
        match to {
            HistoryPlace::Postgresql => {
                assert_eq!(stage.keys("report-times/").await, 0);
                assert_eq!(stage.keys("report-packed/").await, 0);
                assert_eq!(stage.keys("reports/").await, 1);
            }
            _ => assert_eq!(stage.keys("reports/").await, runs.len()),
        }
    }
    // Late copies are still recognised.
    stage.whole(runs[0]).await;
    check(&runs).await;
}

#[tokio::test]
async fn a_server_alone_moves_the_reports_of_an_earlier_version_into_its_directory() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let runs: Vec<NodeRunId> = (0..5).map(|_| new_run()).collect();
    for run in &runs {
        let events = vec![started(), changed("/a"), finished(RunEnding::Succeeded)];
        send(&node, *run, 0, events).await.expect("stored");
    }
    let directory = server.directory();
    // Earlier versions did not note the place.
    let forget = Transaction::new().delete(bunraku_control::keys::HISTORY_PLACE);
    server.store().commit(forget).await.expect("deleted");
    let mut options = server.options();
    server.shutdown().await;
    let history = SqliteHistory::open(directory.path().join("history")).await;
    options.services.history = HistoryBackends {
        embedded: Some(Arc::new(history.expect("a new history"))),
        ..HistoryBackends::default()
    };
    let mut server = TestServer::open(directory, options).await;
    let left = async |server: &TestServer| {
        let range = Range::prefix(bunraku_control::keys::REPORT_TIMES);
        let page = server.store().range(range).await;
        page.expect("readable").items.len()
    };
    for run in &runs {
        let shown: bunraku_wire::api::ReportSummary = server
            .operator
            .get(&format!("/v1/nodes/web-1/reports/{run}"))
            .await
            .expect("it is shown all the time");
        assert_eq!(shown.next, 3);
    }
    eventually(async || left(&server).await == 0).await;
    let page: bunraku_wire::api::ReportPage =
        server.operator.get("/v1/reports").await.expect("listed");
    assert_eq!(page.reports.len(), 5);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_wait_while_postgresql_is_down_and_everything_is_there_once_when_it_returns() {
    let mut postgresql = PostgresqlServer::start().await;
    let database = PostgresqlOptions {
        connect_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(1),
        ..postgresql.database("fleet").await
    };
    let history = PostgresqlHistory::new(database).expect("valid settings");
    let mut server = TestServer::start_with(|options| {
        options.services.history = backends(history);
    })
    .await;
    let node = server.node("web-1").await;
    let run = new_run();
    send(&node, run, 0, vec![started()]).await.expect("stored");
    postgresql.kill();
    let rest = vec![changed("/a"), finished(RunEnding::Succeeded)];
    let refused = send(&node, run, 1, rest.clone())
        .await
        .expect_err("refused");
    assert_eq!(refused.status(), Some(503), "{refused}");
    assert!(refused.to_string().contains("history"), "{refused}");
    // Everything else works, and says what is wrong.
    let ready = text_at(&server, "/readyz").await;
    assert!(
        ready.starts_with("ready\n") && ready.contains("history is unavailable"),
        "{ready}"
    );
    let shown = metrics(&server).await;
    let line = shown
        .lines()
        .find(|line| line.contains("history_unavailable_seconds ") && !line.starts_with('#'));
    let line = line.expect("a metric");
    assert!(!line.ends_with(" 0"), "{line}");
    let status: bunraku_wire::api::ServerStatus =
        server.operator.get("/v1/server").await.expect("answered");
    let outage = status.history.expect("shown").outage.expect("an outage");
    assert!(outage.contains("PostgreSQL"), "{outage}");
    postgresql.launch();
    postgresql.wait_until_ready().await;
    eventually(async || send(&node, run, 1, rest.clone()).await.is_ok()).await;
    send(&node, run, 1, rest).await.expect("known already");
    let page: bunraku_wire::api::ReportPage =
        server.operator.get("/v1/reports").await.expect("listed");
    assert_eq!(page.reports.len(), 1);
    let path = format!("/v1/nodes/web-1/reports/{run}/events");
    let events = server.operator.stream::<NumberedEvent>(&path);
    let mut events = events.await.expect("events");
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        seen.push(event.expect("readable").number);
    }
    assert_eq!(seen, [0, 1, 2]);
    eventually(async || text_at(&server, "/readyz").await == "ready\n").await;
    server.shutdown().await;
}

#[tokio::test]
async fn runs_are_followed_live_from_a_history_in_the_data_directory() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let history = SqliteHistory::open(directory.path().join("history")).await;
    let mut options = options(directory.path());
    options.services.history = HistoryBackends {
        embedded: Some(Arc::new(history.expect("a new history"))),
        ..HistoryBackends::default()
    };
    let mut server = TestServer::open(directory, options).await;
    let node = server.node("web-1").await;
    let run = new_run();
    let path = format!("/v1/nodes/web-1/reports/{run}/stream");
    let _presence = crate::support::open_stream(&node, "web-1").await;
    let mut one = server
        .operator
        .stream::<NumberedEvent>(&path)
        .await
        .expect("a stream");
    let mut all = server
        .operator
        .stream::<bunraku_wire::api::ReportStreamMessage>("/v1/reports/stream")
        .await
        .expect("a stream");
    send(&node, run, 0, vec![started()]).await.expect("stored");
    send(
        &node,
        run,
        1,
        vec![changed("/a"), finished(RunEnding::Succeeded)],
    )
    .await
    .expect("stored");
    let mut seen = Vec::new();
    while let Some(event) = crate::support::soon(one.next()).await {
        seen.push(event.expect("readable").number);
    }
    assert_eq!(seen, [0, 1, 2]);
    let mut streamed = Vec::new();
    while streamed.len() < 3 {
        let message = crate::support::soon(all.next()).await.expect("a message");
        if let bunraku_wire::api::ReportStreamMessage::Events { events, .. } =
            message.expect("readable")
        {
            streamed.extend(numbers(&events));
        }
    }
    assert_eq!(streamed, [0, 1, 2]);
    server.shutdown().await;
}
