//! Two of three members are gone: reads work where they are allowed, and writes fail. Also a leader
//! that lost a request.

use bunraku_testkit::eventually;
use std::sync::Arc;
use std::time::Duration;

use bunraku_store::etcd::{EtcdOptions, EtcdStore};
use bunraku_store::stale::{self, Permission};
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{
    Follow, NoMajority, Range, Store, StoreError, Transaction, TransactionOutcome,
};

const PATIENCE: Duration = Duration::from_secs(90);

fn options(cluster: &EtcdCluster) -> EtcdOptions {
    EtcdOptions {
        request_timeout: Duration::from_secs(2),
        retry_for: Duration::from_secs(4),
        ..cluster.options("/majority/")
    }
}

fn without_majority(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable(source) => source.is::<NoMajority>(),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_old_data_is_read_where_allowed_and_nothing_is_written() {
    let mut cluster = EtcdCluster::start(3).await;
    let store = EtcdStore::connect(options(&cluster))
        .await
        .expect("it answers");
    store
        .commit(Transaction::new().put("nodes/web-1", "kept"))
        .await
        .expect("it is written");
    let permission = Permission::default();
    stale::allow(permission.clone(), store.get("nodes/web-1"))
        .await
        .expect("it is read");
    assert_eq!(permission.used(), None, "with a majority all is the newest");

    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.kill((leader + 1) % 3);
    let refused = || async {
        let put = Transaction::new().put("nodes/web-1", "new");
        let error = store.commit(put).await.expect_err("nothing is written");
        without_majority(&error)
    };
    eventually(refused).await;
    assert!(store.without_majority_for().is_some());
    let denied = store.get("nodes/web-1").await.expect_err("not allowed");
    assert!(without_majority(&denied), "{denied:?}");

    let permission = Permission::default();
    let reading = async {
        let entry = store.get("nodes/web-1").await?.expect("it is there");
        let page = store.range(Range::prefix("nodes/")).await?;
        Ok::<_, StoreError>((entry.value, page.items.len()))
    };
    let (value, count) = stale::allow(permission.clone(), reading)
        .await
        .expect("one member is enough");
    assert_eq!((&value[..], count), (&b"kept"[..], 1));
    assert!(permission.used().is_some(), "and it is said");

    let mut begun_without = begins_without_a_majority(&cluster).await;

    cluster.restart(leader).await;
    eventually(|| async { store.without_majority_for().is_none() }).await;
    let written = store.commit(Transaction::new().put("nodes/web-1", "new"));
    let written = written.await.expect("it is written again");
    assert!(matches!(written, TransactionOutcome::Committed(_)));
    let (late, follow) = &mut begun_without;
    let change = tokio::time::timeout(PATIENCE, follow.next()).await;
    let change = change.expect("it goes on").expect("followed").into_puts();
    assert_eq!(change[0].value, "new", "from where the snapshot was");
    eventually(|| async {
        let put = Transaction::new().put("nodes/web-2", "late");
        late.commit(put).await.is_ok()
    })
    .await;
}

/// Creates a store when two members are already gone, and a follower on it.
async fn begins_without_a_majority(cluster: &EtcdCluster) -> (EtcdStore, Follow) {
    let strict = EtcdStore::connect(options(cluster)).await;
    assert!(strict.is_err(), "not for those who need a majority");
    let late = EtcdStore::connect_even_to_one(options(cluster)).await;
    let late = late.expect("one member is enough");
    assert!(late.without_majority_for().is_some());
    let put = Transaction::new().put("nodes/web-1", "late");
    let error = late.commit(put).await.expect_err("nothing is written");
    assert!(without_majority(&error), "{error:?}");
    let mut follow = Follow::new(Arc::new(late.clone()), "nodes/");
    let shown = stale::allow(Permission::default(), follow.next()).await;
    let shown = shown.expect("it is read").into_puts();
    assert_eq!(shown[0].value, "kept");
    (late, follow)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_dead_leader_swallowed_is_not_waited_for() {
    let mut cluster = EtcdCluster::start(3).await;
    let leader = cluster.leader().await;
    let mut options = options(&cluster);
    // A follower gets the request and passes it on. The timeouts are too long to wait for.
    options.endpoints.rotate_left((leader + 1) % 3);
    options.request_timeout = Duration::from_secs(3600);
    options.retry_for = Duration::from_secs(3600);
    let store = EtcdStore::connect(options).await.expect("it answers");
    let put = |text: &'static str| store.commit(Transaction::new().put("beat", text));
    put("first").await.expect("it is written");
    cluster.kill(leader);
    let again = async {
        // The outcome of the first attempt is unknown; that of a later one is known.
        while put("second").await.is_err() {}
    };
    tokio::time::timeout(PATIENCE, again)
        .await
        .expect("the new leader is noticed");
}
