//! The fact service alone: the queue, its workers, crashes in the middle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bunraku_control::{
    Clock, EnvironmentOf, FactHooks, FactOptions, Facts, FactsChanged, Metrics, Nodes,
    PersistOutcome, ServiceError, keys,
};
use bunraku_model::{EnvironmentName, FactSet, FactSetId, NodeName, ServerId, VolatileFacts};
use bunraku_store::blobs::{BlobOptions, SharedBlobs, StoreBlobs};
use bunraku_store::testing::{CutPoint, CutStore, MemoryStore};
use bunraku_store::{Range, SharedStore, Transaction};
use bunraku_wire::api::SubmissionOrder;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{eventually, name};

/// Records each change in the transaction that makes it.
struct Asked;

#[async_trait]
impl FactsChanged for Asked {
    async fn facts_changed(
        &self,
        transaction: Transaction,
        node: &NodeName,
        fact_set: FactSetId,
    ) -> Result<Transaction, ServiceError> {
        Ok(transaction.put(format!("asked/{node}"), fact_set.to_string()))
    }
}

struct Fleet {
    store: SharedStore,
    blobs: SharedBlobs,
    facts: Facts,
}

fn service(store: &SharedStore, options: FactOptions) -> Facts {
    let hooks = FactHooks {
        changed: Some(Arc::new(Asked)),
        environment: None,
    };
    let blobs = StoreBlobs::in_store(store.clone(), BlobOptions::default());
    Facts::new(
        store.clone(),
        Arc::new(blobs),
        Clock::system(),
        options,
        hooks,
    )
}

async fn fleet(options: FactOptions) -> Fleet {
    let store: SharedStore = Arc::new(MemoryStore::new());
    Nodes::new(store.clone(), Clock::system())
        .register(&name("web-1"))
        .await
        .expect("registered");
    Fleet {
        blobs: Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default())),
        facts: service(&store, options),
        store,
    }
}

impl Fleet {
    async fn keys(&self, prefix: &str) -> Vec<String> {
        let page = self.store.range(Range::prefix(prefix)).await;
        let items = page.expect("read").items;
        items.into_iter().map(|item| item.key).collect()
    }

    async fn text(&self, key: &str) -> Option<String> {
        let found = self.store.get(key).await.expect("read")?;
        Some(String::from_utf8(found.value.to_vec()).expect("text"))
    }

    async fn contents(&self) -> usize {
        self.blobs.list(None).await.expect("listed").len()
    }

    async fn references(&self) -> usize {
        self.keys("blob-refs/").await.len()
    }
}

fn facts(value: Value) -> FactSet {
    value.try_into().expect("an object")
}

#[tokio::test]
async fn a_submission_is_durable_and_readable_before_any_worker_had_it() {
    let fleet = fleet(FactOptions::default()).await;
    let node = name("web-1");
    let receipt = fleet
        .facts
        .submit(&node, &facts(json!({"role": "web"})), None)
        .await
        .expect("taken");
    assert!(receipt.changed);
    assert_eq!(fleet.keys("fact-queue/").await, ["fact-queue/web-1"]);
    assert_eq!(fleet.keys("asked/").await, [""; 0]);
    let shown = fleet.facts.show(&node).await.expect("shown");
    assert_eq!(shown.facts.get("role"), Some(&json!("web")));
    assert_eq!(
        fleet.facts.persist(&node).await.expect("persisted"),
        PersistOutcome::Changed
    );
    assert_eq!(fleet.keys("fact-queue/").await, [""; 0]);
    assert_eq!(
        fleet.text("asked/web-1").await,
        Some(receipt.fact_set.to_string())
    );
    let again = fleet.facts.show(&node).await.expect("shown");
    assert_eq!(again.facts, shown.facts);
    assert_eq!(
        fleet.facts.persist(&node).await.expect("nothing to do"),
        PersistOutcome::Nothing
    );
}

#[tokio::test]
async fn the_newest_of_two_queued_submissions_wins() {
    for large in [false, true] {
        let fleet = fleet(FactOptions {
            inline_bytes: if large { 0 } else { 256 << 10 },
            ..FactOptions::default()
        })
        .await;
        let node = name("web-1");
        for number in 0..5 {
            fleet
                .facts
                .submit(&node, &facts(json!({"number": number})), None)
                .await
                .expect("taken");
        }
        assert_eq!(
            fleet.references().await,
            usize::from(large),
            "what was replaced in the queue is let go"
        );
        fleet.facts.persist(&node).await.expect("persisted");
        let shown = fleet.facts.show(&node).await.expect("shown");
        assert_eq!(shown.facts.get("number"), Some(&json!(4)));
        assert_eq!(fleet.references().await, 1);
        assert_eq!(fleet.facts.history(&node).await.expect("told").len(), 1);
    }
}

#[tokio::test]
async fn what_an_agent_sent_earlier_and_arrives_later_is_left_out() {
    let fleet = fleet(FactOptions::default()).await;
    let node = name("web-1");
    let session = Uuid::from_u128(1);
    let order = |number| {
        Some(SubmissionOrder {
            session,
            number,
            settled: false,
        })
    };
    let submit = async |value: Value, order| {
        let submitted = fleet.facts.submit(&node, &facts(value), order).await;
        submitted.expect("taken")
    };
    submit(json!({"number": 2}), order(2)).await;
    for persisted in [false, true] {
        if persisted {
            fleet.facts.persist(&node).await.expect("persisted");
        }
        let late = submit(json!({"number": 1}), order(1)).await;
        assert!(late.superseded && !late.changed);
        let same = submit(json!({"number": 2}), order(2)).await;
        assert!(
            !same.superseded && !same.changed,
            "a double changes nothing"
        );
    }
    // The same facts with a later number count as newer.
    submit(json!({"number": 2}), order(4)).await;
    assert!(submit(json!({"number": 3}), order(3)).await.superseded);
    let other = Some(SubmissionOrder {
        session: Uuid::from_u128(2),
        number: 0,
        settled: false,
    });
    assert!(
        submit(json!({"number": 0}), other).await.changed,
        "an agent that was restarted counts from the start"
    );
}

#[tokio::test]
async fn equal_facts_thousands_of_times_ask_for_nothing_and_grow_nothing() {
    let fleet = fleet(FactOptions::default()).await;
    let node = name("web-1");
    let submit = async |uptime: u64| {
        let value = json!({"role": "web", "system_uptime": {"seconds": uptime}});
        let submitted = fleet.facts.submit(&node, &facts(value), None).await;
        submitted.expect("taken")
    };
    submit(0).await;
    fleet.facts.persist(&node).await.expect("persisted");
    let before = (fleet.keys("").await, fleet.contents().await);
    let asked = fleet.store.get("asked/web-1").await.expect("read");
    for uptime in 1..5_000 {
        assert!(!submit(uptime).await.changed);
        if uptime % 500 == 0 {
            let persisted = fleet.facts.persist(&node).await.expect("nothing to do");
            assert_eq!(persisted, PersistOutcome::Nothing);
        }
    }
    assert_eq!((fleet.keys("").await, fleet.contents().await), before);
    assert_eq!(
        fleet.store.get("asked/web-1").await.expect("read"),
        asked,
        "no compile was asked for"
    );
}

#[tokio::test]
async fn facts_that_swing_keep_only_what_history_names() {
    let fleet = fleet(FactOptions {
        history: 2,
        ..FactOptions::default()
    })
    .await;
    let node = name("web-1");
    for number in [0, 1, 0, 1, 0, 2, 3, 4, 5, 5] {
        fleet
            .facts
            .submit(&node, &facts(json!({"number": number})), None)
            .await
            .expect("taken");
        fleet.facts.persist(&node).await.expect("persisted");
    }
    assert_eq!(fleet.references().await, 3);
    let history = fleet.facts.history(&node).await.expect("told");
    assert_eq!(history.len(), 3);
    let difference = fleet.facts.difference(&node, None, None).await;
    let changes = difference.expect("two are there").changes;
    assert_eq!(
        (changes[0].before.clone(), changes[0].after.clone()),
        (Some(json!(4)), Some(json!(5)))
    );
    let oldest = history[2].fact_set.to_string();
    let between = fleet
        .facts
        .difference(
            &node,
            Some(&oldest[..10]),
            Some(&history[0].fact_set.to_string()),
        )
        .await;
    assert_eq!(between.expect("told").changes[0].before, Some(json!(3)));
    let unknown = fleet.facts.difference(&node, Some("ffff"), None).await;
    assert!(matches!(unknown, Err(ServiceError::NotFound { .. })));
}

#[tokio::test]
async fn a_removed_node_leaves_nothing_behind_and_its_submissions_are_dropped() {
    for large in [false, true] {
        let fleet = fleet(FactOptions {
            inline_bytes: if large { 0 } else { 256 << 10 },
            ..FactOptions::default()
        })
        .await;
        let (node, nodes) = (
            name("web-1"),
            Nodes::new(fleet.store.clone(), Clock::system()),
        );
        for number in 0..3 {
            fleet
                .facts
                .submit(&node, &facts(json!({"number": number})), None)
                .await
                .expect("taken");
            if number < 2 {
                fleet.facts.persist(&node).await.expect("persisted");
            }
        }
        assert!(
            !nodes.remove(&node).await.expect("refused"),
            "not while facts are there"
        );
        fleet.facts.forget(&node).await.expect("forgotten");
        assert!(nodes.remove(&node).await.expect("removed"));
        assert_eq!(fleet.references().await, 0);
        assert_eq!(fleet.keys("fact-queue/").await, [""; 0]);
        assert_eq!(fleet.keys("nodes/").await, [""; 0]);
        let gone = fleet.facts.submit(&node, &facts(json!({})), None).await;
        assert!(matches!(gone, Err(ServiceError::NotFound { .. })));
    }
}

#[tokio::test]
async fn an_entry_of_a_node_whose_record_went_meanwhile_is_dropped() {
    let fleet = fleet(FactOptions::default()).await;
    let node = name("web-1");
    fleet
        .facts
        .submit(&node, &facts(json!({"a": 1})), None)
        .await
        .expect("taken");
    let gone = Transaction::new().delete(keys::node_record(&node));
    fleet.store.commit(gone).await.expect("deleted");
    assert_eq!(
        fleet.facts.persist(&node).await.expect("dropped"),
        PersistOutcome::Nothing
    );
    assert_eq!(fleet.keys("fact-queue/").await, [""; 0]);
    assert_eq!(fleet.references().await, 0);
}

/// Kills a server at each of its writes, before and after the write takes effect.
#[tokio::test]
async fn a_kill_at_any_write_loses_no_acknowledged_submission_and_leaks_nothing() {
    for inline_bytes in [256 << 10, 0] {
        for cut in [CutPoint::Before, CutPoint::After] {
            for at in 0.. {
                if !killed_at(at, cut, inline_bytes).await {
                    assert!(at > 4, "the writes were counted: {at}");
                    break;
                }
            }
        }
    }
}

async fn killed_at(at: u64, cut: CutPoint, inline_bytes: usize) -> bool {
    let options = FactOptions {
        inline_bytes,
        history: 1,
        ..FactOptions::default()
    };
    let fleet = fleet(options.clone()).await;
    let node = name("web-1");
    let cutting = Arc::new(CutStore::new(fleet.store.clone(), at, cut));
    let store: SharedStore = cutting.clone();
    let doomed = service(&store, options);
    let mut acknowledged = None;
    for number in 0..3 {
        let value = facts(json!({"number": number}));
        match doomed.submit(&node, &value, None).await {
            Ok(_) => acknowledged = Some(number),
            Err(_) => break,
        }
        if doomed.persist(&node).await.is_err() {
            break;
        }
    }
    // Another server takes over the remaining state.
    fleet.facts.persist(&node).await.expect("persisted");
    assert_eq!(fleet.keys("fact-queue/").await, [""; 0]);
    if let Some(acknowledged) = acknowledged {
        let shown = fleet.facts.show(&node).await.expect("not lost");
        let number = shown.facts.get("number").and_then(Value::as_i64);
        assert!(number >= Some(acknowledged), "cut {cut:?} at {at}");
        assert_eq!(
            fleet.text("asked/web-1").await,
            Some(shown.fact_set.to_string()),
            "cut {cut:?} at {at}: the compile was asked for"
        );
    }
    fleet.facts.forget(&node).await.expect("forgotten");
    assert_eq!(fleet.references().await, 0, "cut {cut:?} at {at}");
    cutting.is_cut()
}

#[tokio::test]
async fn workers_persist_what_their_server_took_and_later_what_another_left() {
    let options = |number| FactOptions {
        server: ServerId(Uuid::from_u128(number)),
        adopt_after: Duration::from_millis(50),
        ..FactOptions::default()
    };
    let fleet = fleet(options(1)).await;
    let other = service(&fleet.store, options(2));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (facts, stop) = (fleet.facts.clone(), stop.clone());
        async move { facts.run_workers(Arc::new(Metrics::default()), stop).await }
    });
    let node = name("web-1");
    for (service, role) in [(&fleet.facts, "own"), (&other, "theirs")] {
        let receipt = service
            .submit(&node, &facts(json!({"role": role})), None)
            .await
            .expect("taken");
        let asked = Some(receipt.fact_set.to_string());
        eventually(async || fleet.text("asked/web-1").await == asked).await;
        eventually(async || fleet.keys("fact-queue/").await.is_empty()).await;
    }
    stop.cancel();
    running.await.expect("they end");
}

#[tokio::test]
async fn many_workers_on_many_servers_persist_each_submission_once() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let nodes = Nodes::new(store.clone(), Clock::system());
    let services: Vec<Facts> = (0..3)
        .map(|_| service(&store, FactOptions::default()))
        .collect();
    let names: Vec<NodeName> = (0..50).map(|number| name(&format!("n-{number}"))).collect();
    for node in &names {
        nodes.register(node).await.expect("registered");
        let value = facts(json!({"of": node.as_str()}));
        services[0].submit(node, &value, None).await.expect("taken");
    }
    let changed = Arc::new(Mutex::new(BTreeMap::new()));
    let tries = names.iter().flat_map(|node| {
        services.iter().map(|service| {
            let (service, node, changed) = (service.clone(), node.clone(), Arc::clone(&changed));
            tokio::spawn(async move {
                if service.persist(&node).await.expect("persisted") == PersistOutcome::Changed {
                    *changed.lock().expect("whole").entry(node).or_insert(0) += 1;
                }
            })
        })
    });
    for tried in tries.collect::<Vec<_>>() {
        tried.await.expect("it ends");
    }
    let changed = changed.lock().expect("whole");
    assert_eq!(changed.len(), names.len());
    assert!(changed.values().all(|times| *times == 1), "{changed:?}");
}

struct ByName;

#[async_trait]
impl EnvironmentOf for ByName {
    async fn environment_of(
        &self,
        node: &NodeName,
    ) -> Result<Option<EnvironmentName>, ServiceError> {
        let environment = match node.as_str() {
            "web-1" => "loose",
            _ => "strict",
        };
        Ok(EnvironmentName::new(environment).ok())
    }
}

#[tokio::test]
async fn each_environment_has_its_own_list_of_volatile_facts() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let loose = EnvironmentName::new("loose").expect("a name");
    let options = FactOptions {
        volatile_in: BTreeMap::from([(loose, VolatileFacts::new(["noise".to_owned()]))]),
        ..FactOptions::default()
    };
    let hooks = FactHooks {
        changed: None,
        environment: Some(Arc::new(ByName)),
    };
    let blobs = Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default()));
    let service = Facts::new(store.clone(), blobs, Clock::system(), options, hooks);
    let nodes = Nodes::new(store.clone(), Clock::system());
    for (node, counts) in [("web-1", false), ("web-2", true)] {
        nodes.register(&name(node)).await.expect("registered");
        let first = service
            .submit(&name(node), &facts(json!({"noise": 1})), None)
            .await
            .expect("taken");
        let second = service
            .submit(&name(node), &facts(json!({"noise": 2})), None)
            .await
            .expect("taken");
        assert!(first.changed);
        assert_eq!(second.changed, counts, "{node}");
    }
}

/// Returns a clock that tests set, in seconds.
fn set_clock() -> (Clock, Arc<std::sync::atomic::AtomicI64>) {
    let seconds = Arc::new(std::sync::atomic::AtomicI64::new(0));
    let first: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let looked_at = Arc::clone(&seconds);
    let clock = Clock::new(move || {
        let passed = looked_at.load(std::sync::atomic::Ordering::SeqCst);
        first + jiff::SignedDuration::from_secs(passed)
    });
    (clock, seconds)
}

async fn revision(store: &SharedStore) -> u64 {
    let page = store.range(Range::prefix("nodes/")).await;
    page.expect("memory answers").revision.0
}

async fn keys_of(store: &SharedStore) -> usize {
    let mut keys = 0;
    let mut range = Range {
        keys_only: true,
        ..Range::prefix("")
    };
    loop {
        let page = store.range(range.clone()).await.expect("memory answers");
        keys += page.items.len();
        range.after = page.items.last().map(|item| item.key.clone());
        if !page.more {
            return keys;
        }
    }
}

#[tokio::test]
async fn the_same_facts_a_hundred_thousand_times_make_nothing_grow() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let (clock, seconds) = set_clock();
    let blobs: SharedBlobs = Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default()));
    let hooks = FactHooks::default();
    let options = FactOptions::default();
    let service = Facts::new(store.clone(), blobs.clone(), clock.clone(), options, hooks);
    let (node, session) = (name("web-1"), Uuid::new_v4());
    let nodes = Nodes::new(store.clone(), clock);
    nodes.register(&node).await.expect("registered");
    let submit = async |number: u64| {
        let order = SubmissionOrder {
            session,
            number,
            settled: number > 0,
        };
        let uptime = json!({"role": "web", "system_uptime": {"seconds": number}});
        let taken = service.submit(&node, &facts(uptime), Some(order)).await;
        taken.expect("taken").changed
    };
    assert!(submit(0).await);
    service.persist(&node).await.expect("persisted");
    let (first, keys) = (revision(&store).await, keys_of(&store).await);
    // Half an hour: not a single write.
    for number in 1..50_000 {
        seconds.store(
            number as i64 * 1_800 / 50_000,
            std::sync::atomic::Ordering::SeqCst,
        );
        assert!(!submit(number).await);
    }
    assert_eq!(revision(&store).await, first, "nothing was written");
    // A day: the newest volatile values are written once an hour and replace the previous
    // ones.
    for number in 50_000..100_000_u64 {
        let passed = 1_800 + (number - 50_000) as i64 * 86_400 / 50_000;
        seconds.store(passed, std::sync::atomic::Ordering::SeqCst);
        assert!(!submit(number).await);
    }
    let written = revision(&store).await - first;
    assert!((1..=24 * 8).contains(&written), "{written} revisions");
    let shown = service.show(&node).await.expect("shown");
    let uptime = shown.facts.get("system_uptime.seconds").cloned();
    let uptime = uptime.and_then(|value| value.as_u64()).expect("a number");
    assert!(uptime > 95_000, "the newest values are kept: {uptime}");
    // The content that held the previous values is released.
    for later in ["2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"] {
        let later = later.parse().expect("a time");
        blobs.collect(later).await.expect("memory answers");
    }
    assert!(keys_of(&store).await <= keys + 4, "nothing piles up");
}

#[tokio::test]
async fn a_late_submission_is_left_out_though_the_one_after_it_brought_nothing_new() {
    let fleet = fleet(FactOptions::default()).await;
    let (node, session) = (name("web-1"), Uuid::new_v4());
    let submit = async |number, settled, role: &str| {
        let order = SubmissionOrder {
            session,
            number,
            settled,
        };
        let facts = facts(json!({"role": role}));
        let taken = fleet.facts.submit(&node, &facts, Some(order)).await;
        taken.expect("taken")
    };
    submit(0, false, "web").await;
    fleet.facts.persist(&node).await.expect("persisted");
    // Number 1 was in flight when the agent gave up on it.
    assert!(!submit(2, false, "web").await.changed);
    assert!(submit(1, true, "database").await.superseded);
    let shown = fleet.facts.show(&node).await.expect("shown");
    assert_eq!(shown.facts.get("role"), Some(&json!("web")));
}

#[tokio::test]
async fn what_operators_say_of_an_environment_counts_on_every_server() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let environment = bunraku_model::default_environment();
    let set = async |volatile: Value| {
        let settings = json!({"url": "file:///x", "policy": "manual", "volatile": volatile, "created": "2026-01-01T00:00:00Z"});
        let key = keys::environment_settings(&environment);
        let put = Transaction::new().put(key, settings.to_string());
        store.commit(put).await.expect("memory takes it");
    };
    // The second server's own file differs. It applies only if the stored settings are silent.
    let own = VolatileFacts::new(["role".to_owned()]);
    let server = |own: BTreeMap<EnvironmentName, VolatileFacts>| {
        let queue = bunraku_server::backstage::CompileQueue::new(store.clone(), Clock::system());
        let hooks = FactHooks {
            changed: None,
            environment: Some(Arc::new(queue)),
        };
        let options = FactOptions {
            volatile_in: own,
            ..FactOptions::default()
        };
        let blobs = Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default()));
        Facts::new(store.clone(), blobs, Clock::system(), options, hooks)
    };
    let servers = [
        server(BTreeMap::new()),
        server(BTreeMap::from([(environment.clone(), own)])),
    ];
    let nodes = Nodes::new(store.clone(), Clock::system());
    nodes.register(&name("web-1")).await.expect("registered");
    let id = async |server: &Facts, value: Value| {
        let taken = server.submit(&name("web-1"), &facts(value), None).await;
        taken.expect("taken").fact_set
    };
    set(json!(["noise"])).await;
    let first = id(&servers[0], json!({"role": "web", "noise": 1})).await;
    let second = id(&servers[1], json!({"role": "web", "noise": 2})).await;
    assert_eq!(first, second, "noise counts nowhere");
    let other = id(&servers[1], json!({"role": "database", "noise": 2})).await;
    assert_ne!(second, other, "the file says nothing here");
    set(json!([])).await;
    let loud = id(&servers[0], json!({"role": "web", "noise": 1})).await;
    let louder = id(&servers[0], json!({"role": "web", "noise": 2})).await;
    assert_ne!(loud, louder, "from one submission to the next");
    set(Value::Null).await;
    let web = id(&servers[1], json!({"role": "web"})).await;
    let database = id(&servers[1], json!({"role": "database"})).await;
    assert_eq!(web, database, "then the server's file counts");
}
