//! The log through crashes, failover, retention and large numbers of records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bunraku_model::{AuditChainCheck, AuditChainPlace, AuditChainSummary, BrokenAuditChain};
use bunraku_store::testing::{CutPoint, CutStore, MemoryStore, Overlay};
use bunraku_store::{Compare, Transaction, TransactionOutcome};
use bunraku_wire::api::{AuditPage, AuditRecord};
use jiff::{SignedDuration, Timestamp};

use super::*;

const SERVER: u128 = 1;

struct Fixture {
    store: SharedStore,
    time: Arc<Mutex<Timestamp>>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            store: Arc::new(MemoryStore::new()),
            time: Arc::new(Mutex::new(Timestamp::UNIX_EPOCH)),
        }
    }

    fn log(&self, server: u128) -> AuditLog {
        self.log_on(self.store.clone(), server)
    }

    fn log_on(&self, store: SharedStore, server: u128) -> AuditLog {
        let time = Arc::clone(&self.time);
        let clock = Clock::new(move || *time.lock().expect("a clock"));
        let name = format!("server-{server}");
        let server = ServerId(Uuid::from_u128(server));
        AuditLog::new(store, clock, server, &name, AuditOptions::default())
    }

    fn wait(&self, time: SignedDuration) {
        let mut now = self.time.lock().expect("a clock");
        *now += time;
    }

    async fn register(&self, server: u128) {
        let key = keys::server(ServerId(Uuid::from_u128(server)));
        let alive = Transaction::new().put(key, "alive");
        self.store.commit(alive).await.expect("registered");
    }

    async fn die(&self, server: u128) {
        let key = keys::server(ServerId(Uuid::from_u128(server)));
        let dead = Transaction::new().delete(key);
        self.store.commit(dead).await.expect("gone");
    }

    async fn lines(&self) -> Vec<bytes::Bytes> {
        let mut lines = self.log(SERVER).lines_after(0).await.expect("lines");
        let mut all = Vec::new();
        while let Some(some) = lines.next().await.expect("lines") {
            all.extend(some);
        }
        all
    }

    async fn verify(&self) -> Result<AuditChainSummary, BrokenAuditChain> {
        let mut check = AuditChainCheck::default();
        for line in self.lines().await {
            check.add(&line)?;
        }
        let head = self.log(SERVER).head().await.expect("a head");
        check.finish(Some(&AuditChainPlace {
            number: head.number,
            hash: head.hash,
        }))
    }

    /// Returns action and outcome of every record, oldest first.
    async fn records(&self) -> Vec<String> {
        let lines = self.lines().await;
        let records = lines.iter().map(|line| {
            let record: AuditRecord = serde_json::from_slice(line).expect("a record");
            format!("{} {}", record.entry.action, record.entry.outcome.as_str())
        });
        records.collect()
    }
}

fn action(name: &str) -> AuditAction {
    AuditAction::new(name).on("node", "web-1")
}

/// Links everything that waits, as a leader does.
async fn link(log: &AuditLog) {
    log.close_intents_of_the_dead().await.expect("closed");
    let mut ids = log.newest_ids().await.expect("ids");
    log.link_everything(&mut ids).await.expect("linked");
}

#[tokio::test]
async fn a_change_is_recorded_with_its_outcome() {
    let fixture = Fixture::new();
    fixture.register(SERVER).await;
    let log = fixture.log(SERVER);
    let begun = log.begin(action("disable-node")).await.expect("begun");
    link(&log).await;
    let finished = begun.finish(AuditOutcome::Succeeded).await;
    finished.expect("recorded");
    log.record(action("enable-node"), AuditOutcome::Failed)
        .await
        .expect("recorded");
    let transaction = log.record_in(Transaction::new(), action("remove-node"));
    fixture.store.commit(transaction).await.expect("committed");
    link(&log).await;
    assert_eq!(
        fixture.records().await,
        [
            "disable-node succeeded",
            "enable-node failed",
            "remove-node succeeded"
        ]
    );
    assert_eq!(fixture.verify().await.expect("intact").last.number, 3);
}

#[tokio::test]
async fn a_change_whose_server_died_is_recorded_as_unknown_once() {
    let fixture = Fixture::new();
    fixture.register(1).await;
    fixture.register(2).await;
    let (dying, other) = (fixture.log(1), fixture.log(2));
    std::mem::forget(dying.begin(action("disable-node")).await.expect("begun"));
    link(&other).await;
    assert!(fixture.records().await.is_empty(), "it may still succeed");
    fixture.die(1).await;
    link(&other).await;
    link(&fixture.log(3)).await;
    assert_eq!(fixture.records().await, ["disable-node unknown"]);
    assert_eq!(fixture.verify().await.expect("intact").unknown, 1);
}

#[tokio::test]
async fn a_server_that_only_seemed_dead_still_records_the_outcome() {
    let fixture = Fixture::new();
    let (slow, other) = (fixture.log(1), fixture.log(2));
    let begun = slow.begin(action("disable-node")).await.expect("begun");
    link(&other).await;
    let finished = begun.finish(AuditOutcome::Succeeded).await;
    finished.expect("recorded");
    link(&other).await;
    assert_eq!(
        fixture.records().await,
        ["disable-node unknown", "disable-node succeeded"]
    );
    fixture.verify().await.expect("intact");
}

#[tokio::test]
async fn a_request_that_was_dropped_is_recorded_as_unknown() {
    let fixture = Fixture::new();
    fixture.register(SERVER).await;
    let log = fixture.log(SERVER);
    drop(log.begin(action("disable-node")).await.expect("begun"));
    log.close().await;
    link(&log).await;
    assert_eq!(fixture.records().await, ["disable-node unknown"]);
}

#[tokio::test]
async fn an_action_that_changed_nothing_leaves_no_trace() {
    let fixture = Fixture::new();
    let log = fixture.log(SERVER);
    let begun = log.begin(action("acquire-lock")).await.expect("begun");
    begun.nothing_changed().await;
    link(&log).await;
    assert!(fixture.records().await.is_empty());
    let left = document::keys_under(&*fixture.store, "audit/").await;
    assert!(left.expect("keys").is_empty());
}

/// Every call to the store fails in turn, once before and once after it was done. The outcome must
/// be in the log exactly once.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_the_store_neither_loses_nor_repeats_a_record() {
    for is_done in [false, true] {
        for call in 0..12 {
            let fixture = Fixture::new();
            fixture.register(SERVER).await;
            let point = CutPoint::Unsure { done: is_done };
            let cut = CutStore::at_commit(fixture.store.clone(), call, point);
            let cut: SharedStore = Arc::new(cut);
            let log = fixture.log_on(cut, SERVER);
            if let Ok(begun) = log.begin(action("disable-node")).await {
                // The outcome is written later, if not now.
                let _ = begun.finish(AuditOutcome::Succeeded).await;
            }
            let _ = log
                .record(action("enable-node"), AuditOutcome::Succeeded)
                .await;
            let mut ids = log.newest_ids().await.expect("ids");
            while log.link_everything(&mut ids).await.is_err() {}
            log.close().await;
            link(&fixture.log(2)).await;
            assert_eq!(
                fixture.records().await,
                ["disable-node succeeded", "enable-node succeeded"],
                "call {call}, done: {is_done}"
            );
            fixture.verify().await.expect("intact");
        }
    }
}

/// Members of a cluster have no audit log of their own. They write records for this one.
#[test]
fn members_of_a_cluster_write_records_where_the_log_looks_for_them() {
    let id = uuid::Uuid::now_v7();
    let written = bunraku_wire::api::cluster::keys::audit_record(id);
    assert_eq!(written, crate::keys::audit_inbox(id));
}

/// The outcome could not be written, so the caller must not be told that it succeeded: this server
/// may die before it is.
#[tokio::test(start_paused = true)]
async fn a_change_is_acknowledged_only_after_its_outcome_was_written() {
    let fixture = Fixture::new();
    fixture.register(SERVER).await;
    let cut = CutStore::at_commit(fixture.store.clone(), 1, CutPoint::Before);
    let log = fixture.log_on(Arc::new(cut), SERVER);
    let begun = log.begin(action("disable-node")).await.expect("begun");
    assert!(begun.finish(AuditOutcome::Succeeded).await.is_err());
    fixture.die(SERVER).await;
    link(&fixture.log(2)).await;
    assert_eq!(fixture.records().await, ["disable-node unknown"]);
}

/// A store that refuses every write which adds something, as etcd does when it is full.
struct FullStore {
    inner: SharedStore,
    is_full: AtomicBool,
}

impl Overlay for FullStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let mut operations = transaction.operations.iter();
        let adds = operations.any(|it| matches!(it, bunraku_store::Operation::Put { .. }));
        if adds && self.is_full.load(Ordering::Relaxed) {
            return Err(StoreError::Full("no space".to_owned()));
        }
        self.inner.commit(transaction).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_while_the_store_is_full_is_recorded_as_soon_as_there_is_room() {
    let fixture = Fixture::new();
    fixture.register(SERVER).await;
    let store = Arc::new(FullStore {
        inner: fixture.store.clone(),
        is_full: AtomicBool::new(true),
    });
    let log = fixture.log_on(store.clone(), SERVER);
    let refused = log.begin(action("disable-node")).await;
    assert!(refused.is_err(), "nothing is changed without a record");
    let begun = log.begin_deletion(action("remove-node")).await;
    let begun = begun.expect("a deletion makes room");
    let finished = begun.finish(AuditOutcome::Succeeded).await;
    finished.expect("the caller may know");
    link(&fixture.log(2)).await;
    assert!(fixture.records().await.is_empty(), "there is no room yet");
    store.is_full.store(false, Ordering::Relaxed);
    log.close().await;
    link(&fixture.log(2)).await;
    assert_eq!(fixture.records().await, ["remove-node succeeded"]);
}

#[tokio::test]
async fn two_leaders_at_once_do_not_fork_the_chain() {
    let fixture = Fixture::new();
    let logs = [fixture.log(1), fixture.log(2), fixture.log(3)];
    let mut work = tokio::task::JoinSet::new();
    for log in logs {
        work.spawn(async move {
            let mut ids = log.newest_ids().await.expect("ids");
            for number in 0..100 {
                let name = format!("action-{number}");
                let recorded = log.record(action(&name), AuditOutcome::Succeeded).await;
                recorded.expect("recorded");
                log.link_everything(&mut ids).await.expect("linked");
            }
        });
    }
    work.join_all().await;
    assert_eq!(fixture.verify().await.expect("intact").last.number, 300);
}

#[tokio::test]
async fn old_records_are_deleted_and_the_rest_stays_verifiable() {
    let fixture = Fixture::new();
    let log = fixture.log(SERVER);
    let mut ids = log.newest_ids().await.expect("ids");
    for day in 0..600 {
        fixture.wait(SignedDuration::from_hours(24));
        let name = format!("action-{day}");
        let recorded = log.record(action(&name), AuditOutcome::Succeeded).await;
        recorded.expect("recorded");
        log.link_everything(&mut ids).await.expect("linked");
        if day % 150 == 149 {
            log.prune_and_pack().await.expect("pruned");
            fixture.verify().await.expect("intact");
        }
    }
    let summary = fixture.verify().await.expect("intact");
    assert_eq!(summary.first, 200, "400 days are kept");
    assert!(fixture.records().await[0].starts_with("action-199"));
    // Somebody removes more than the checkpoint says.
    let oldest = document::keys_under(&*fixture.store, keys::AUDIT_RECORDS).await;
    let oldest = oldest.expect("keys").remove(0);
    let removed = Transaction::new().delete(oldest);
    fixture.store.commit(removed).await.expect("removed");
    assert!(matches!(
        fixture.verify().await,
        Err(BrokenAuditChain::WrongStart { .. })
    ));
}

#[tokio::test]
async fn packed_records_are_read_like_others() {
    let fixture = Fixture::new();
    let log = fixture.log(SERVER);
    let mut ids = log.newest_ids().await.expect("ids");
    for number in 0..1_200 {
        let name = format!("action-{number}");
        let recorded = log.record(action(&name), AuditOutcome::Succeeded).await;
        recorded.expect("recorded");
        log.link_everything(&mut ids).await.expect("linked");
    }
    let before = fixture.lines().await;
    log.prune_and_pack().await.expect("packed");
    assert_eq!(fixture.lines().await, before);
    let keys = document::keys_under(&*fixture.store, keys::AUDIT_RECORDS).await;
    assert!(keys.expect("keys").len() < 600);
    for after in [0, 1, 99, 100, 101, 699, 700, 1_199] {
        let mut lines = log.lines_after(after).await.expect("lines");
        let first = lines.next().await.expect("lines").expect("some");
        let first: AuditRecord = serde_json::from_slice(&first[0]).expect("a record");
        assert_eq!(first.number, Some(after + 1));
    }
    let mut none = log.lines_after(1_200).await.expect("lines");
    assert!(none.next().await.expect("lines").is_none());
}

#[tokio::test]
async fn pages_show_every_matching_record_once_newest_first() {
    let fixture = Fixture::new();
    let log = fixture.log(SERVER);
    let mut ids = log.newest_ids().await.expect("ids");
    for number in 0..2_500_u32 {
        let name = if number % 10 == 0 {
            "create-release"
        } else {
            "fire-trigger"
        };
        let entry = AuditAction::new(name).on("environment", format!("env-{number}"));
        let recorded = log.record(entry, AuditOutcome::Succeeded).await;
        recorded.expect("recorded");
        if number % 7 == 0 && number < 2_450 {
            log.link_everything(&mut ids).await.expect("linked");
        }
    }
    let mut filter = AuditFilter {
        action: Some("create-*".to_owned()),
        limit: 33,
        ..AuditFilter::default()
    };
    let mut found = Vec::new();
    loop {
        let AuditPage { records, next } = log.list(&filter).await.expect("a page");
        found.extend(records.into_iter().filter_map(|record| record.entry.object));
        match next {
            Some(next) => filter.before = Some(next),
            None => break,
        }
        // Records that wait are shown on the first page only.
        log.link_everything(&mut ids).await.expect("linked");
    }
    let wanted: Vec<String> = (0..250)
        .rev()
        .map(|it| format!("environment/env-{}", it * 10))
        .collect();
    assert_eq!(found, wanted);
    let one = AuditFilter {
        object: Some("env-17".to_owned()),
        limit: 10,
        ..AuditFilter::default()
    };
    assert_eq!(log.list(&one).await.expect("a page").records.len(), 1);
}

#[tokio::test]
async fn a_follower_sees_every_record_once() {
    let fixture = Fixture::new();
    let log = fixture.log(SERVER);
    let mut follow = log.follow(None).await.expect("followed");
    let writer = log.clone();
    let writing = tokio::spawn(async move {
        let mut ids = writer.newest_ids().await.expect("ids");
        for number in 0..300 {
            let name = format!("action-{number}");
            let recorded = writer.record(action(&name), AuditOutcome::Succeeded).await;
            recorded.expect("recorded");
            if number % 3 == 0 || number == 299 {
                writer.link_everything(&mut ids).await.expect("linked");
            }
        }
    });
    let mut seen = Vec::new();
    while seen.len() < 300 {
        let next = tokio::time::timeout(Duration::from_secs(60), follow.next()).await;
        for line in next.expect("in time").expect("lines") {
            let record: AuditRecord = serde_json::from_slice(&line).expect("a record");
            seen.push(record.number.expect("a number"));
        }
    }
    writing.await.expect("written");
    assert_eq!(seen, (1..=300).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_record_in_a_refused_transaction_does_not_exist() {
    let fixture = Fixture::new();
    let log = fixture.log(SERVER);
    let refused = Transaction::new().when(Compare::Exists("nowhere".to_owned()));
    let refused = log.record_in(refused, action("disable-node"));
    fixture.store.commit(refused).await.expect("answered");
    link(&log).await;
    assert!(fixture.records().await.is_empty());
}
