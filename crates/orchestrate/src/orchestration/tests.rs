//! Runs whose leader, or whose store, fails around any one of its writes.

use bunraku_testkit::eventually;
use std::collections::BTreeMap;
use std::sync::Mutex;

use bunraku_model::{Administration, Connection, NodeName, NodeRunId};
use bunraku_plan::run::RunOutcome;
use bunraku_plan::{Inventory, PlanOptions, site_file};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs, SharedBlobs};
use bunraku_store::testing::{CutPoint, CutStore};
use bunraku_store::{Change, EmbeddedOptions, EmbeddedStore};
use bunraku_wire::api::{
    Command, CommandOutcome, CommandResult, Envelope, ReportBatch, ReportEvent, RunEnding,
    RunFinished, RunMode, RunStarted,
};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use bunraku_compile::catalogs::{CatalogOptions, Catalogs};
use bunraku_compile::{CatalogDiffs, ReleaseOptions, Releases};
use bunraku_control::NoQueries;
use bunraku_control::presence::{NodeRunMethod, StoredConnection};
use bunraku_control::{CommandOptions, Commands, ReportOptions};

const SITE: &str = "applications: {shop: {components: {
    db: {node: db, produces: [sql]},
    web: {nodes: [web-1, web-2], consumes: [sql], produces: [http]},
    lb: {node: lb, consumes: [http]}}}}";
const NODES: [&str; 4] = ["db", "web-1", "web-2", "lb"];

/// A store with four nodes, and the record of their runs.
struct World {
    store: SharedStore,
    directory: TempDir,
    /// Every executed node run, in order.
    ran: Arc<Mutex<Vec<(NodeName, NodeRunId)>>>,
}

fn clock() -> Clock {
    Clock::new(Timestamp::now)
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a name")
}

impl World {
    async fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("s");
        let store = EmbeddedStore::open(&path, EmbeddedOptions::default());
        let store: SharedStore = Arc::new(store.await.expect("a store"));
        let mut transaction = Transaction::new();
        for node in NODES.map(name) {
            let since = Timestamp::now();
            let administration = Administration::Enabled { since };
            let record = serde_json::json!({ "administration": administration });
            let connection = StoredConnection {
                connection: Connection::Connected {
                    since,
                    server: ServerId(Uuid::nil()),
                },
                session: Uuid::nil(),
                agent_version: String::new(),
                run_method: Some(NodeRunMethod {
                    name: "command".to_owned(),
                    applies_released: false,
                }),
            };
            transaction = transaction
                .put(keys::node_record(&node), document::encode(&record))
                .put(keys::node_connection(&node), document::encode(&connection));
        }
        store.commit(transaction).await.expect("written");
        Self {
            store,
            directory,
            ran: Arc::default(),
        }
    }

    async fn blobs(&self, store: &SharedStore) -> SharedBlobs {
        let place = self.directory.path().join("b");
        let blobs = DirectoryBlobs::in_directory(place, store.clone(), BlobOptions::default());
        Arc::new(blobs.await.expect("blobs"))
    }

    /// Starts a server on this store.
    async fn server(&self, store: SharedStore) -> Orchestration {
        let blobs = self.blobs(&self.store).await;
        let reports = Reports::new(
            store.clone(),
            blobs.clone(),
            clock(),
            ReportOptions::default(),
        );
        let catalogs = Catalogs::new(
            store.clone(),
            blobs.clone(),
            clock(),
            CatalogOptions::default(),
        );
        let releases = Releases::new(
            store.clone(),
            blobs.clone(),
            catalogs.clone(),
            clock(),
            Arc::new(NoQueries),
            ReleaseOptions::default(),
        );
        let diffs = CatalogDiffs::new(store.clone(), blobs, catalogs.clone(), releases.clone());
        let plans = Plans::new(store.clone(), reports.clone(), releases, catalogs, diffs);
        let options = OrchestrationOptions::default();
        let server = ServerId(Uuid::new_v4());
        Orchestration::new(
            store,
            clock(),
            server,
            options,
            OrchestrationLinks {
                reports,
                plans,
                audit: Default::default(),
                reactors: ReactorInbox::default(),
                find_nodes: std::sync::Arc::new(NoQueries),
            },
        )
    }

    /// Starts agents that execute the requested runs, each id once.
    async fn agents(&self) -> tokio::task::JoinHandle<()> {
        let blobs = self.blobs(&self.store).await;
        let store = self.store.clone();
        let reports = Reports::new(store.clone(), blobs, clock(), ReportOptions::default());
        let commands = Commands::new(store.clone(), clock(), CommandOptions::default());
        let ran = Arc::clone(&self.ran);
        let prefix = keys::all_pending_commands();
        let asked = store.watch(&prefix, WatchStart::Now).await;
        let mut asked = asked.expect("a watch");
        tokio::spawn(async move {
            while let Some(Ok(batch)) = asked.next().await {
                for change in batch.changes {
                    let Change::Put(entry) = change else { continue };
                    let (node, id) = keys::parse_pending_command(&entry.key).expect("a command");
                    let envelope: Envelope = document::decode(&entry).expect("an envelope");
                    let Command::Run(request) = envelope.command else {
                        panic!("nothing is cancelled");
                    };
                    let place = (node.clone(), request.id);
                    let known = ran.lock().expect("not poisoned").contains(&place);
                    if !known {
                        ran.lock().expect("not poisoned").push(place);
                        let batch = ReportBatch {
                            first: 0,
                            events: report_of(request.causes.clone()),
                        };
                        reports.take(&node, request.id, batch).await.expect("taken");
                    }
                    let result = CommandResult {
                        outcome: CommandOutcome::Done,
                        message: String::new(),
                        finished: Timestamp::now(),
                    };
                    commands.answer(&node, id, &result).await.expect("answered");
                }
            }
        })
    }
}

/// A complete report.
fn report_of(causes: Vec<bunraku_wire::api::Cause>) -> Vec<ReportEvent> {
    let started = RunStarted {
        causes,
        ..RunStarted::new(Timestamp::now(), RunMode::Enforce, "test")
    };
    let finished = RunFinished::new(Timestamp::now(), RunEnding::Succeeded);
    vec![
        ReportEvent::Started(started),
        ReportEvent::Finished(finished),
    ]
}

fn new_run() -> NewRun {
    let site = site_file("site.yaml", SITE, &Inventory::default()).expect("a site");
    let plan = bunraku_plan::plan_site(&site, &PlanOptions::default()).expect("a plan");
    let subject = bunraku_plan::run::OrderedRunSubject::Configured { environment: None };
    NewRun::of(plan.with_options(Default::default(), subject))
}

async fn wait_for_end(server: &Orchestration, run: RunId) -> RunEnd {
    let waited = async {
        loop {
            let most = Duration::from_secs(1);
            let (_, end) = server.follow_log(run, u64::MAX, most).await.expect("a log");
            if let Some(end) = end {
                return end;
            }
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, waited)
        .await
        .expect("the run ends within a minute")
}

/// Executes a run with a fault at one write. Returns false if the run had fewer writes.
async fn through(at: u64, cut: CutPoint) -> bool {
    let world = World::new().await;
    let agents = world.agents().await;
    let living = world.server(world.store.clone()).await;
    let run = living.create(new_run(), "ann").await.expect("taken in").id;
    let faulty = Arc::new(CutStore::at_commit(world.store.clone(), at, cut));
    let first = world.server(faulty.clone()).await;
    let stop = CancellationToken::new();
    let (leading, until) = (first.clone(), stop.clone());
    let leading = tokio::spawn(async move { leading.run(until).await });
    let mut second = None;
    if let CutPoint::Before | CutPoint::After = cut {
        eventually(async || {
            faulty.is_cut() || living.end_of(run).await.expect("readable").is_some()
        })
        .await;
        leading.abort();
        // As if the dead leader's lease had expired.
        let gone = Transaction::new().delete(keys::run_leader(run));
        world.store.commit(gone).await.expect("deleted");
        let (next, until) = (living.clone(), stop.clone());
        second = Some(tokio::spawn(async move { next.run(until).await }));
    }
    let end = wait_for_end(&living, run).await;
    assert_eq!(end.outcome, RunOutcome::Succeeded, "{at} {cut:?}");
    for node in NODES.map(name) {
        let hold = living.hold_of(&node).await.expect("readable");
        assert_eq!(hold, None, "{at} {cut:?}: a run that has ended has nothing");
    }
    let ran = world.ran.lock().expect("not poisoned").clone();
    let mut times: BTreeMap<NodeName, usize> = BTreeMap::new();
    for (node, _) in &ran {
        *times.entry(node.clone()).or_default() += 1;
    }
    assert_eq!(times.len(), 4, "{at} {cut:?}: nobody is forgotten");
    assert!(
        times.values().all(|times| *times == 1),
        "{at} {cut:?}: {ran:?}"
    );
    let order: Vec<&str> = ran.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!((order[0], order[3]), ("db", "lb"), "{at} {cut:?}");
    stop.cancel();
    for task in [Some(leading), second].into_iter().flatten() {
        let _ = task.await;
    }
    agents.abort();
    faulty.is_reached()
}

/// Tests every write of a run, one after the other, with this fault.
async fn every_write(cut: CutPoint) {
    let mut at = 0;
    loop {
        let some = (at..at + 6).map(|at| through(at, cut));
        let reached = futures::future::join_all(some).await;
        at += 6;
        if reached.contains(&false) {
            break;
        }
        assert!(at < 200, "a run of four nodes has not so many writes");
    }
    assert!(at > 6, "{cut:?}: a run has more writes than these");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_before_any_of_its_writes_is_followed_by_another() {
    every_write(CutPoint::Before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_after_any_of_its_writes_is_followed_by_another() {
    every_write(CutPoint::After).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_with_an_unknown_outcome_changes_nothing() {
    every_write(CutPoint::Unsure { done: false }).await;
    every_write(CutPoint::Unsure { done: true }).await;
}

#[tokio::test]
async fn nodes_are_held_through_the_death_of_a_leader_and_let_go_at_the_end() {
    let world = World::new().await;
    let living = world.server(world.store.clone()).await;
    let run = living.create(new_run(), "ann").await.expect("taken in").id;
    let first = world.server(world.store.clone()).await;
    let leading = tokio::spawn(async move { first.run(CancellationToken::new()).await });
    let held = async || {
        let hold = living.hold_of(&name("lb")).await.expect("readable");
        hold.map(|hold| hold.run)
    };
    eventually(async || held().await == Some(run)).await;
    leading.abort();
    let gone = Transaction::new().delete(keys::run_leader(run));
    world.store.commit(gone).await.expect("deleted");
    assert_eq!(held().await, Some(run), "the hold outlives its leader");
    let refused = living.refuse_held(&[name("lb")]).await;
    assert!(matches!(refused, Err(ServiceError::Conflict { .. })));
    let agents = world.agents().await;
    let stop = CancellationToken::new();
    let (next, until_stopped) = (living.clone(), stop.clone());
    let next = tokio::spawn(async move { next.run(until_stopped).await });
    // The agents were away when the first leader asked, so its command waits.
    let asked = document::keys_under(&*world.store, &keys::all_pending_commands()).await;
    for key in asked.expect("readable") {
        let entry = world.store.get(&key).await.expect("readable");
        let value = entry.expect("it waits").value;
        let again = Transaction::new().put(key, value);
        world.store.commit(again).await.expect("written");
    }
    assert_eq!(
        wait_for_end(&living, run).await.outcome,
        RunOutcome::Succeeded
    );
    assert_eq!(held().await, None, "a run that has ended has nothing");
    stop.cancel();
    next.await.expect("it ends");
    agents.abort();
}
