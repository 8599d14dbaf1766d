//! A server on a real etcd with a quota of 20 MB: it maintains etcd, and survives a full one.

use std::sync::Arc;
use std::time::Duration;

use bunraku_control::data_keys;
use bunraku_server::{ServerOptions, StoreUpkeepOptions};
use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{Range, ReserveStore, Revision, SharedStore, Store, StoreError, Transaction};
use bunraku_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{TestServer, metrics, options, text_at};

const FLAGS: [&str; 1] = ["--quota-backend-bytes=20971520"];

async fn etcd_of(cluster: &EtcdCluster) -> EtcdStore {
    let connected = EtcdStore::connect(cluster.options("/bunraku/")).await;
    connected.expect("connects")
}

fn options_in(directory: &std::path::Path, history: Duration) -> ServerOptions {
    let mut options = options(directory);
    options.services.upkeep.store = StoreUpkeepOptions {
        history: Some(history),
        look_every: Duration::from_millis(100),
        reclaim_pause: Duration::from_millis(500),
        reclaim_pause_when_full: Duration::from_millis(500),
    };
    options
}

async fn start(cluster: &EtcdCluster, history: Duration) -> TestServer {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    start_in(cluster, directory, history).await
}

async fn start_in(
    cluster: &EtcdCluster,
    directory: Arc<tempfile::TempDir>,
    history: Duration,
) -> TestServer {
    let inner: SharedStore = Arc::new(etcd_of(cluster).await);
    let store = Arc::new(ReserveStore::new(inner, data_keys::adds_data));
    let options = options_in(directory.path(), history);
    TestServer::on_shared_store(directory, options, store).await
}

const HOUR: Duration = Duration::from_secs(3_600);

fn big(number: usize) -> Transaction {
    Transaction::new().put(format!("junk/{number:03}"), vec![b'x'; 500_000])
}

/// Lets etcd raise its alarm, behind the server's back.
async fn raise_alarm(etcd: &EtcdStore) {
    for number in 0..1_000 {
        match etcd.commit(big(number)).await {
            Ok(_) | Err(StoreError::OutcomeUnknown(_)) => {}
            Err(StoreError::Full(_)) => return,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the quota is no limit");
}

async fn space(server: &TestServer) -> Value {
    let status: Value = server.operator.get("/v1/server").await.expect("served");
    status["space"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_datastore_refuses_data_and_recovers_when_something_is_deleted() {
    let cluster = EtcdCluster::start_with_flags(1, &FLAGS).await;
    let mut server = start(&cluster, HOUR).await;
    let web = server.node("web-1").await;
    let etcd = etcd_of(&cluster).await;
    // Live data up to the limit that servers keep to.
    for number in 0..34 {
        etcd.commit(big(number)).await.expect("etcd has room");
    }
    eventually(async || space(&server).await["level"] == "full").await;
    assert_eq!(space(&server).await["alarm"], false);

    let facts = json!({"number": 1});
    let refused = web.put::<_, Value>("/v1/nodes/web-1/facts", &facts).await;
    let refused = refused.expect_err("there is no room").to_string();
    assert!(refused.contains("the datastore is full"), "{refused}");
    // Coordination continues: a command is queued, a certificate is revoked.
    server.permit("locks/deploy").await;
    let ready = text_at(&server, "/readyz").await;
    assert!(ready.contains("the datastore is full"), "{ready}");
    let metrics = metrics(&server).await;
    assert!(metrics.contains("bunraku_store_full 1"), "{metrics}");
    assert!(metrics.contains("} 20971520"), "{metrics}");

    let deleted = etcd.commit(Transaction::new().delete_prefix("junk/")).await;
    deleted.expect("deletions work");
    eventually(async || space(&server).await["level"] == "normal").await;
    let stored = web.put::<_, Value>("/v1/nodes/web-1/facts", &facts).await;
    stored.expect("there is room again");
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_alarm_is_recovered_from_automatically() {
    let cluster = EtcdCluster::start_with_flags(1, &FLAGS).await;
    let mut server = start(&cluster, HOUR).await;
    let etcd = etcd_of(&cluster).await;
    // Nothing but history: the same key again and again.
    for number in 0.. {
        let value = vec![b'x'; 500_000 + number];
        match etcd.commit(Transaction::new().put("junk", value)).await {
            Err(StoreError::Full(_)) => break,
            _ => assert!(number < 1_000, "the quota is no limit"),
        }
    }
    eventually(async || {
        let space = etcd.observe_space().await.expect("it answers");
        space.is_some_and(|space| !space.is_full() && !space.is_alarm_raised)
    })
    .await;
    eventually(async || etcd.commit(big(1)).await.is_ok()).await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_while_the_alarm_is_raised() {
    let cluster = EtcdCluster::start_with_flags(1, &FLAGS).await;
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let mut server = start_in(&cluster, Arc::clone(&directory), HOUR).await;
    server.shutdown().await;
    let etcd = etcd_of(&cluster).await;
    raise_alarm(&etcd).await;
    let mut server = start_in(&cluster, directory, HOUR).await;
    // The live data leaves no room for more.
    eventually(async || space(&server).await["level"] == "full").await;
    let deleted = etcd.commit(Transaction::new().delete_prefix("junk/")).await;
    deleted.expect("deletions work");
    eventually(async || space(&server).await["level"] == "normal").await;
    server.token(None).await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_restart_often_still_compact() {
    let cluster = EtcdCluster::start(1).await;
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let etcd = etcd_of(&cluster).await;
    let written = etcd.commit(Transaction::new().put("junk", "first")).await;
    written.expect("written");
    let page = etcd.range(Range::prefix("junk")).await.expect("readable");
    let first = page.revision;
    // No server runs for as long as the history.
    let history = Duration::from_secs(6);
    let is_gone = async || {
        let watch = etcd
            .watch("junk", bunraku_store::WatchStart::At(Revision(first.0)))
            .await;
        match watch {
            Err(StoreError::Compacted { .. }) => true,
            Err(other) => panic!("{other:?}"),
            Ok(mut changes) => matches!(
                futures::StreamExt::next(&mut changes).await,
                Some(Err(StoreError::Compacted { .. }))
            ),
        }
    };
    let mut starts = 0;
    while !is_gone().await {
        let mut server = start_in(&cluster, Arc::clone(&directory), history).await;
        eventually(async || {
            let record = etcd.get("store-upkeep").await.expect("readable");
            record.is_some()
        })
        .await;
        server.shutdown().await;
        starts += 1;
        assert!(starts < 200, "it was never compacted");
    }
    assert!(starts > 1, "one start was enough");
}
