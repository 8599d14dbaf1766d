//! Failover with real servers and real etcd: `kill -9`, and silence.

use bunraku_testkit::eventually;
use std::time::{Duration, Instant};

use crate::support::Cluster;
use bunraku_store::{Compare, Range, Store, Transaction, TransactionOutcome};
use bunraku_wire::api::AuditEntry;
use bunraku_wire::api::cluster::keys;
use rustix::process::{Signal, kill_process};

async fn replaced(cluster: &Cluster, victim: usize) -> Duration {
    let begun = Instant::now();
    let gone = cluster.servers[victim].name.clone();
    cluster
        .wait("the datastore is replaced", |records| {
            records.len() == 3
                && records.iter().all(|it| it.healthy && !it.learner)
                && records.iter().all(|it| it.name.as_ref() != Some(&gone))
        })
        .await;
    begun.elapsed()
}

/// Waits until the audit records of a replacement are complete. No server links them here.
async fn steps_are_recorded(store: &dyn Store, victim: &str) {
    let is_recorded = |records: &[AuditEntry], action: &str| {
        let mut found = records.iter().filter(|record| record.action == action);
        let is_about = |record: &AuditEntry| {
            let object = record.object.as_deref();
            action != "remove-datastore" || object == Some(&format!("server/{victim}"))
        };
        found.any(|record| {
            record.reason.as_deref() == Some("its server is dead") && is_about(record)
        })
    };
    let wanted = [
        "begin-datastore-change",
        "remove-datastore",
        "add-datastore",
        "start-datastore",
        "promote-datastore",
        "complete-datastore-change",
    ];
    eventually(async || {
        let page = store.range(Range::prefix("audit/inbox/")).await;
        let items = page.map(|page| page.items).unwrap_or_default();
        let records: Vec<AuditEntry> = items
            .iter()
            .map(|item| serde_json::from_slice(&item.value).expect("a record"))
            .collect();
        let missing = wanted
            .iter()
            .filter(|action| !is_recorded(&records, action));
        missing.count() == 0
    })
    .await;
    let left = store.get(keys::STEP).await.expect("readable");
    assert!(left.is_none(), "no step is open: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_datastore_is_replaced_and_returns_without_its_old_data() {
    let mut cluster = Cluster::start(4, 3).await;
    let store = cluster.store().await;
    for number in 0..50 {
        let put = Transaction::new()
            .when(Compare::Absent(format!("test/{number}")))
            .put(format!("test/{number}"), "kept");
        let outcome = store.commit(put).await.expect("it is written");
        assert!(matches!(outcome, TransactionOutcome::Committed(_)));
    }
    let (leader, _) = cluster.leader_and_follower().await;
    let old_order = cluster.servers[leader]
        .directory()
        .order()
        .expect("readable");
    let victim = cluster.servers[leader].name.to_string();
    cluster.servers[leader].kill();
    replaced(&cluster, leader).await;
    steps_are_recorded(&*store, &victim).await;
    for number in 0..50 {
        let kept = store
            .get(&format!("test/{number}"))
            .await
            .expect("readable");
        assert!(kept.is_some(), "test/{number} is lost");
    }
    cluster.servers[leader].start();
    let directory = cluster.servers[leader].directory();
    eventually(async || directory.order().expect("readable").is_none()).await;
    let generation = old_order.expect("it had data").generation;
    let old_data = directory.datastores().join(generation);
    eventually(async || !old_data.exists()).await;
    let (leader, _) = cluster.leader_and_follower().await;
    cluster.servers[leader].kill();
    replaced(&cluster, leader).await;
}

/// Nothing is refused and nothing is answered, as with a disk that hangs or a
/// machine that lost power. No connection is reported as closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_datastore_that_falls_silent_is_replaced_like_one_that_ended() {
    let cluster = Cluster::start(4, 3).await;
    // Only the datastore, and the leading one: its server is alive.
    let (hangs, _) = cluster.leader_and_follower().await;
    let datastore = cluster.servers[hangs].datastore_pid();
    kill_process(datastore, Signal::STOP).expect("it can be stopped");
    replaced(&cluster, hangs).await;
    // The whole server.
    let (_, silent) = cluster.leader_and_follower().await;
    let old_order = cluster.servers[silent].directory().order();
    let old_order = old_order.expect("readable").expect("it keeps data");
    let datastore = cluster.servers[silent].datastore_pid();
    cluster.servers[silent].fall_silent();
    replaced(&cluster, silent).await;
    // It wakes up late, and finds that it no longer keeps data.
    kill_process(datastore, Signal::CONT).expect("it can go on");
    cluster.servers[silent].signal(Signal::CONT);
    let directory = cluster.servers[silent].directory();
    let old_data = directory.datastores().join(old_order.generation);
    eventually(async || !old_data.exists()).await;
}
