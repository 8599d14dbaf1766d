//! Reactors on a server that is killed at any write between an event and its trigger.

use std::sync::Arc;

use bunraku_model::{Connection, EnvironmentName, NodeName, NodeRunId};
use bunraku_store::blobs::{BlobOptions, StoreBlobs};
use bunraku_store::testing::{CutPoint, CutStore, InterferingStore, MemoryStore};
use bunraku_wire::api::reactors::Reactor;
use bunraku_wire::api::triggers::{TriggerEvent, TriggerNews};
use bunraku_wire::api::{
    Cause, EventStatus, ReportBatch, ReportEvent, ResourceEvent, RunMode, RunStarted,
};
use jiff::Timestamp;

use super::*;
use crate::Triggers;
use bunraku_control::node_events::NodeLoss;
use bunraku_control::presence::StoredConnection;
use bunraku_control::{FactHooks, FactOptions, NoQueries, NodeEventRecorder, Nodes, ReportOptions};

/// The services of one server.
struct Services {
    reports: Reports,
    reactors: Reactors,
    triggers: Triggers,
}

impl Services {
    async fn open(store: &SharedStore) -> Result<Self, ServiceError> {
        let clock = Clock::system();
        let blobs = Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default()));
        let inbox = ReactorInbox::open(store).await?;
        let reports = Reports::new(
            store.clone(),
            blobs.clone(),
            clock.clone(),
            ReportOptions::default(),
        )
        .with_recorder(Arc::new(inbox.clone()));
        let facts = Facts::new(
            store.clone(),
            blobs,
            clock.clone(),
            FactOptions::default(),
            FactHooks::default(),
        );
        let metrics: Arc<Metrics> = Arc::default();
        let nobody = Arc::new(NoQueries);
        let reactors = Reactors::new(
            store.clone(),
            clock.clone(),
            inbox,
            ReactorLinks {
                facts,
                reports: reports.clone(),
                find_nodes: nobody,
                metrics: Arc::clone(&metrics),
            },
        );
        Ok(Self {
            reports,
            reactors,
            triggers: Triggers::new(store.clone(), clock, metrics),
        })
    }

    /// Does all the background work.
    async fn work(&self, store: &SharedStore) -> Result<(), ServiceError> {
        for key in document::keys_under(&**store, keys::REACTOR_EVENTS).await? {
            self.reactors.react(&key).await?;
        }
        for key in document::keys_under(&**store, keys::TRIGGER_ANNOUNCED).await? {
            self.triggers.process(&key).await?;
        }
        Ok(())
    }
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a name")
}

/// Enough hosts for more than one step, so that a kill may happen between two.
fn hosts() -> Vec<NodeName> {
    (0..70)
        .map(|number| name(&format!("lb-{number:02}")))
        .collect()
}

async fn prepared() -> SharedStore {
    let text: Vec<String> = hosts().iter().map(ToString::to_string).collect();
    prepared_with(&format!(
        "go:\n  when: {{event: resource, status: failed}}\n  then: {{hosts: [{}]}}\n",
        text.join(", ")
    ))
    .await
}

async fn prepared_with(rules: &str) -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let nodes = Nodes::new(store.clone(), Clock::system());
    nodes.register(&name("web-1")).await.expect("registered");
    for host in hosts() {
        nodes.register(&host).await.expect("registered");
    }
    let rules: Vec<Reactor> = rules::parse("reactors/a.yaml", rules).expect("rules");
    let environment = EnvironmentName::new("production").expect("a name");
    let key = keys::environment_reactors(&environment);
    let put = Transaction::new().put(key, document::encode(&rules));
    store.commit(put).await.expect("stored");
    store
}

fn batch() -> ReportBatch {
    batch_of(Cause::Schedule)
}

fn batch_of(cause: Cause) -> ReportBatch {
    let started = RunStarted {
        causes: vec![cause],
        resources: 1,
        ..RunStarted::new(Timestamp::UNIX_EPOCH, RunMode::Enforce, "engine")
    };
    let failed = ResourceEvent::new(
        Timestamp::UNIX_EPOCH,
        "Service",
        "nginx",
        EventStatus::Failed,
    );
    ReportBatch {
        first: 0,
        events: vec![
            ReportEvent::Started(started),
            ReportEvent::Resource(Box::new(failed)),
        ],
    }
}

/// Answers all pending commands, so that a second one cannot hide behind the
/// first. Returns how many commands hosts received.
async fn answer_all(store: &SharedStore) -> usize {
    let mut shown = 0;
    for host in hosts() {
        let prefix = format!("{}{host}/", keys::all_pending_commands());
        for key in document::keys_under(&**store, &prefix).await.expect("read") {
            let answered = Transaction::new()
                .delete(key)
                .delete(keys::trigger_queue(&host));
            store.commit(answered).await.expect("answered");
            shown += 1;
        }
    }
    shown
}

async fn fired(store: &SharedStore) -> Vec<usize> {
    let entries = document::read_all(&**store, keys::TRIGGER_EVENTS).await;
    let events = entries.expect("read");
    let counts = events.iter().filter_map(|entry| {
        let event: TriggerEvent = document::decode(entry).expect("an event");
        match event.what {
            TriggerNews::Fired { count, .. } => Some(count),
            _ => None,
        }
    });
    counts.collect()
}

#[tokio::test]
async fn killed_at_any_write_an_event_fires_its_trigger_once() {
    let run = NodeRunId(uuid::Uuid::now_v7());
    let mut cuts = 0;
    for cut in [CutPoint::Before, CutPoint::After] {
        for at in 0.. {
            let inner = prepared().await;
            let cut_off = Arc::new(CutStore::new(inner.clone(), at, cut));
            let store: SharedStore = cut_off.clone();
            let first = Services::open(&store).await.expect("it starts");
            // Any failure is because the process is gone.
            if first
                .reports
                .take(&name("web-1"), run, batch())
                .await
                .is_ok()
            {
                let _ = first.work(&store).await;
            }
            let mut shown = answer_all(&inner).await;
            let second = Services::open(&inner).await.expect("it starts");
            // The agent sends again everything that it has no receipt for.
            let sent = second.reports.take(&name("web-1"), run, batch()).await;
            sent.expect("stored");
            second.work(&inner).await.expect("it works");
            shown += answer_all(&inner).await;
            assert_eq!(shown, hosts().len(), "cut {cut:?} write {at}");
            assert_eq!(
                fired(&inner).await,
                [hosts().len()],
                "cut {cut:?} write {at}"
            );
            if !cut_off.is_cut() {
                break;
            }
            cuts += 1;
        }
    }
    assert!(
        cuts >= 8,
        "events, announcing and two steps, before and after: {cuts}"
    );
}

#[tokio::test]
async fn killed_at_any_write_an_event_announces_its_run_once() {
    let rules = "go: {when: {event: resource, status: failed}, then: {run: {batch: 1}, hosts: [lb-00, lb-01]}}\n";
    let run = NodeRunId(uuid::Uuid::now_v7());
    let mut cuts = 0;
    for cut in [CutPoint::Before, CutPoint::After] {
        for at in 0.. {
            let inner = prepared_with(rules).await;
            let cut_off = Arc::new(CutStore::new(inner.clone(), at, cut));
            let store: SharedStore = cut_off.clone();
            let first = Services::open(&store).await.expect("it starts");
            let web = name("web-1");
            // Any failure is because the process is gone.
            if first.reports.take(&web, run, batch()).await.is_ok() {
                let _ = first.work(&store).await;
            }
            let second = Services::open(&inner).await.expect("it starts");
            let sent = second.reports.take(&web, run, batch()).await;
            sent.expect("stored");
            second.work(&inner).await.expect("it works");
            let found = document::read_all(&*inner, keys::REACTOR_RUNS).await;
            let found = found.expect("read");
            assert_eq!(found.len(), 1, "cut {cut:?} write {at}");
            let announced: AnnouncedRun = document::decode(&found[0]).expect("a run");
            assert_eq!(announced.hosts, [name("lb-00"), name("lb-01")]);
            assert_eq!(fired(&inner).await.len(), 0, "no trigger");
            if !cut_off.is_cut() {
                break;
            }
            cuts += 1;
        }
    }
    assert!(
        cuts >= 4,
        "the event and its reaction, before and after: {cuts}"
    );
}

#[tokio::test]
async fn what_two_servers_react_to_at_once_is_announced_once() {
    let store = prepared().await;
    let other = Services::open(&store).await.expect("it starts");
    let run = NodeRunId(uuid::Uuid::now_v7());
    let taken = other.reports.take(&name("web-1"), run, batch()).await;
    taken.expect("stored");
    let events = document::keys_under(&*store, keys::REACTOR_EVENTS).await;
    let key = events.expect("read").remove(0);
    let same = key.clone();
    let meddled = Arc::new(InterferingStore::new(store.clone(), async move {
        other.reactors.react(&same).await.expect("it reacts");
    }));
    let shared: SharedStore = meddled.clone();
    let late = Services::open(&shared).await.expect("it starts");
    late.reactors.react(&key).await.expect("nothing is left");
    assert!(meddled.is_meddled());
    assert_eq!(announced(&store).await, 1);
}

async fn announced(store: &SharedStore) -> usize {
    let announced = document::keys_under(&**store, keys::TRIGGER_ANNOUNCED).await;
    announced.expect("read").len()
}

#[tokio::test]
async fn more_rules_than_one_transaction_sees_to_fire_once_each() {
    let rule = |number: usize| {
        format!("r{number:02}: {{when: {{event: resource}}, then: {{hosts: lb-00}}}}\n")
    };
    let rules: String = (0..45).map(rule).collect();
    let store = prepared_with(&rules).await;
    let services = Services::open(&store).await.expect("it starts");
    let run = NodeRunId(uuid::Uuid::now_v7());
    let taken = services.reports.take(&name("web-1"), run, batch()).await;
    taken.expect("stored");
    let events = document::keys_under(&*store, keys::REACTOR_EVENTS).await;
    for key in events.expect("read") {
        let reacted = services.reactors.react(&key);
        let patience = std::time::Duration::from_secs(60);
        let reacted = tokio::time::timeout(patience, reacted).await;
        reacted.expect("it ends").expect("it reacts");
    }
    assert_eq!(announced(&store).await, 45);
}

#[tokio::test]
async fn what_happens_to_a_node_outside_of_runs_carries_on_the_chain_of_its_newest_run() {
    let store = prepared_with("gone: {when: {event: node_lost}, then: {hosts: '${node}'}}\n").await;
    let services = Services::open(&store).await.expect("it starts");
    // A run at the end of its chain, whose effect is that the node is lost.
    let last = Cause::Trigger(bunraku_wire::api::TriggerCause::new("gone", 0));
    let run = NodeRunId(uuid::Uuid::now_v7());
    let (web, batch) = (name("web-1"), batch_of(last));
    let taken = services.reports.take(&web, run, batch).await;
    taken.expect("stored");
    let inbox = ReactorInbox::open(&store).await.expect("rules");
    let loss = NodeLoss {
        node: &web,
        since: Timestamp::UNIX_EPOCH,
        reason: "it went away",
    };
    let lost = inbox.node_lost(Transaction::new(), &loss);
    store.commit(lost).await.expect("stored");
    services.work(&store).await.expect("it works");
    assert_eq!(fired(&store).await.len(), 0, "the chain has ended");
    let entries = document::read_all(&*store, keys::TRIGGER_EVENTS).await;
    let shown: Vec<TriggerEvent> = (entries.expect("read").iter())
        .map(|entry| document::decode(entry).expect("an event"))
        .collect();
    assert!(
        matches!(
            &shown[..],
            [TriggerEvent {
                what: TriggerNews::Stopped { .. },
                ..
            }]
        ),
        "{shown:?}"
    );
}

/// Processes a run with three failures under one rule.
async fn three_failures(rules: &str) -> SharedStore {
    let store = prepared_with(rules).await;
    let services = Services::open(&store).await.expect("it starts");
    let mut batch = batch();
    let failed = batch.events[1].clone();
    batch.events.extend([failed.clone(), failed]);
    let run = NodeRunId(uuid::Uuid::now_v7());
    let taken = services.reports.take(&name("web-1"), run, batch).await;
    taken.expect("stored");
    let events = document::keys_under(&*store, keys::REACTOR_EVENTS).await;
    for key in events.expect("read") {
        services.reactors.react(&key).await.expect("it reacts");
    }
    store
}

#[tokio::test]
async fn what_a_batch_has_several_times_counts_as_often_and_fires_once() {
    let rule = |occurrences: u32| {
        format!(
            "go: {{when: {{event: resource}}, then: {{hosts: lb-00}}, limits: {{occurrences: {occurrences}}}}}\n"
        )
    };
    assert_eq!(announced(&three_failures(&rule(3)).await).await, 1);
    assert_eq!(announced(&three_failures(&rule(4)).await).await, 0);
}

#[tokio::test]
async fn what_no_rule_is_about_is_not_even_written_down() {
    let store =
        prepared_with("go: {when: {event: resource, status: changed}, then: {hosts: lb-00}}\n")
            .await;
    let services = Services::open(&store).await.expect("it starts");
    let run = NodeRunId(uuid::Uuid::now_v7());
    let taken = services.reports.take(&name("web-1"), run, batch()).await;
    taken.expect("stored");
    let events = document::keys_under(&*store, keys::REACTOR_EVENTS).await;
    assert_eq!(events.expect("read").len(), 0);
}

const LOST_FOR_A_MINUTE: &str = "gone: {when: {event: node_lost, for: 1m}, then: {hosts: lb-00}}\n";

/// Marks the node lost since `seconds_ago`, and reacts to it.
async fn lose(store: &SharedStore, services: &Services, seconds_ago: i64) {
    let since = Timestamp::now() - jiff::SignedDuration::from_secs(seconds_ago);
    let node = name("web-1");
    let connection = StoredConnection {
        connection: Connection::Lost {
            since,
            reason: "its connection closed".to_owned(),
        },
        session: uuid::Uuid::now_v7(),
        agent_version: "0".to_owned(),
        run_method: None,
    };
    let put = Transaction::new().put(keys::node_connection(&node), document::encode(&connection));
    let loss = NodeLoss {
        node: &node,
        since,
        reason: "closed",
    };
    let lost = services.reactors.inbox.node_lost(put, &loss);
    store.commit(lost).await.expect("stored");
    for key in document::keys_under(&**store, keys::REACTOR_EVENTS)
        .await
        .expect("read")
    {
        services.reactors.react(&key).await.expect("it reacts");
    }
}

/// Checks the waiting rules and processes the resulting events. Returns how many
/// firings are announced.
async fn wait_over(store: &SharedStore, services: &Services) -> usize {
    services.reactors.do_due().await.expect("it looks");
    for key in document::keys_under(&**store, keys::REACTOR_EVENTS)
        .await
        .expect("read")
    {
        services.reactors.react(&key).await.expect("it reacts");
    }
    announced(store).await
}

#[tokio::test]
async fn a_node_that_came_back_and_is_lost_again_is_lost_since_then() {
    let store = prepared_with(LOST_FOR_A_MINUTE).await;
    let services = Services::open(&store).await.expect("it starts");
    lose(&store, &services, 300).await;
    // It was back in between: the first wait has ended, the second has not.
    lose(&store, &services, 10).await;
    assert_eq!(wait_over(&store, &services).await, 0);
    lose(&store, &services, 61).await;
    assert_eq!(wait_over(&store, &services).await, 1);
}

#[tokio::test]
async fn what_a_rule_held_back_goes_with_the_rule() {
    let store = prepared_with(
        "kept: {when: {event: resource}, then: {hosts: lb-00}, limits: {occurrences: 5}}\n",
    )
    .await;
    let services = Services::open(&store).await.expect("it starts");
    let environment = EnvironmentName::new("production").expect("a name");
    let held = document::encode(&crate::triggers::HeldFirings::default());
    let of = |rule: &str| keys::reactor_held(&environment, rule, None);
    let put = Transaction::new()
        .put(of("kept"), held.clone())
        .put(of("removed"), held);
    store.commit(put).await.expect("stored");
    services.reactors.do_due().await.expect("it looks");
    let left = document::keys_under(&*store, keys::REACTOR_HELD).await;
    assert_eq!(left.expect("read"), [of("kept")]);
}
