//! The space of a real etcd with a small quota: observed, defended, and reclaimed.

use std::sync::Arc;
use std::time::Duration;

use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{
    MemberSpace, Range, ReserveStore, SharedStore, SpaceLevel, Store, StoreError, StoreSpace,
    Transaction,
};
use bunraku_testkit::eventually;

const QUOTA: u64 = 20 << 20;
const FLAGS: [&str; 1] = ["--quota-backend-bytes=20971520"];

async fn store_of(cluster: &EtcdCluster) -> EtcdStore {
    let connected = EtcdStore::connect(cluster.options("/space/")).await;
    connected.expect("connects")
}

async fn observed(store: &dyn Store) -> StoreSpace {
    let observed = store.observe_space().await.expect("the members answer");
    observed.expect("etcd knows its space")
}

fn piece(number: usize) -> Transaction {
    let text = number.to_string().repeat(500_000);
    Transaction::new().put(format!("data/{number:03}"), text[..500_000].to_owned())
}

/// Writes pieces until one is refused. Returns how many were accepted.
async fn fill(store: &dyn Store) -> usize {
    for number in 0..1_000 {
        match store.commit(piece(number)).await {
            Ok(_) => {}
            Err(StoreError::Full(_)) => return number,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the quota is no limit");
}

async fn newest(store: &dyn Store) -> bunraku_store::Revision {
    let page = store.range(Range::prefix("nothing/")).await;
    page.expect("readable").revision
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_and_size_of_every_member_are_known_over_tls_too() {
    let cluster = EtcdCluster::start_with_tls_and_flags(3, &FLAGS).await;
    let store = store_of(&cluster).await;
    assert_eq!(store.space(), None, "nothing was observed yet");
    for number in 0..8 {
        store.commit(piece(number)).await.expect("there is room");
    }
    let holds_it = |member: &MemberSpace| {
        member.quota_bytes == Some(QUOTA)
            && member.used_bytes > 4_000_000
            && member.size_bytes >= member.used_bytes
    };
    eventually(async || {
        let space = observed(&store).await;
        space.members.len() == 3 && space.members.iter().all(holds_it)
    })
    .await;
    let space = store.space().expect("the last observation");
    assert_eq!(space.level(), SpaceLevel::Normal);
    let names: Vec<_> = space.members.into_iter().map(|it| it.name).collect();
    assert_eq!(names, cluster.endpoints());
}

#[tokio::test(flavor = "multi_thread")]
async fn data_is_refused_early_enough_that_coordination_and_deletions_continue() {
    let cluster = EtcdCluster::start_with_flags(1, &FLAGS).await;
    let etcd = store_of(&cluster).await;
    let inner: SharedStore = Arc::new(etcd.clone());
    let store = ReserveStore::new(inner, |key| key.starts_with("data/"));
    let written = fill(&store).await;
    assert!(written > 20, "most of the quota can be used: {written}");
    let space = observed(&store).await;
    assert!(space.room_bytes() < Some(600_000), "{space:?}");
    assert!(!space.is_alarm_raised, "{space:?}");

    // Coordination goes on: a thousand small writes, and leases.
    for number in 0..1_000 {
        let lock = Transaction::new().put("locks/one", format!("holder {number}"));
        store.commit(lock).await.expect("the reserve is for this");
    }
    let lease = store.lease_grant(Duration::from_secs(60)).await;
    let lease = lease.expect("the reserve is for this");
    let claim = Transaction::new().put_with_lease("claims/one", "", lease);
    store.commit(claim).await.expect("the reserve is for this");
    // Pages that became free meanwhile are used up first.
    fill(&store).await;
    let mixed = Transaction::new()
        .put("locks/one", "")
        .put("data/one", vec![b'x'; 800_000]);
    let refused = store.commit(mixed).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");

    // Deleting frees space, after compaction and a defragmentation.
    let deleted = store
        .commit(Transaction::new().delete_prefix("data/"))
        .await;
    assert!(deleted.expect("deletions work").is_committed());
    store.compact(newest(&store).await).await.expect("compacts");
    eventually(async || {
        store.reclaim_space().await.expect("reclaims");
        let space = observed(&store).await;
        space.members[0].size_bytes < QUOTA / 4
    })
    .await;
    eventually(async || store.commit(piece(1)).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_alarm_is_noticed_and_cleared_once_there_is_room() {
    let cluster = EtcdCluster::start_with_flags(3, &FLAGS).await;
    let store = store_of(&cluster).await;
    let written = fill(&store).await;
    let space = store.space().expect("the refusal says it");
    assert!(space.is_alarm_raised && space.is_full(), "{space:?}");
    let refused = store.lease_grant(Duration::from_secs(60)).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    // An observation by another store finds it too.
    let other = store_of(&cluster).await;
    eventually(async || observed(&other).await.is_alarm_raised).await;

    let keep = written / 2;
    for number in keep..written {
        let key = format!("data/{number:03}");
        let deleted = other.commit(Transaction::new().delete(key)).await;
        deleted.expect("deletions work");
    }
    // A member that is late: it compacts only after the others have. It must not be defragmented
    // before, because it would keep the space of its history.
    let late = (cluster.leader().await + 1) % 3;
    cluster.pause(late);
    other.compact(newest(&other).await).await.expect("compacts");
    cluster.resume(late);
    eventually(async || observed(&other).await.members.len() == 3).await;
    other.reclaim_space().await.expect("reclaims");
    eventually(async || !observed(&other).await.is_alarm_raised).await;
    let space = observed(&other).await;
    assert!(
        space.members.iter().all(|it| it.size_bytes < QUOTA * 3 / 4),
        "one attempt shrinks every member: {space:?}"
    );
    eventually(async || other.commit(piece(keep)).await.is_ok()).await;
    for number in 0..=keep {
        let key = format!("data/{number:03}");
        let found = other.get(&key).await.expect("readable");
        assert!(found.is_some(), "{key} was acknowledged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_refused_for_lack_of_space_did_not_happen() {
    let cluster = EtcdCluster::start_with_flags(1, &FLAGS).await;
    let store = store_of(&cluster).await;
    // Many at once: some pass the first check and exceed the quota when they are done.
    let write = async |numbers: std::ops::Range<usize>| {
        let writes = numbers.map(|number| {
            let store = store.clone();
            tokio::spawn(async move { (number, store.commit(piece(number)).await) })
        });
        futures::future::join_all(writes).await
    };
    let mut outcomes = write(0..100).await;
    let is_refused = |outcome: &Result<(usize, Result<_, StoreError>), _>| {
        matches!(outcome, Ok((_, Err(StoreError::Full(_)))))
    };
    while !outcomes.iter().any(is_refused) {
        let next = outcomes.len();
        assert!(next < 1_000, "the quota is no limit");
        outcomes.extend(write(next..next + 10).await);
    }
    for outcome in outcomes {
        let (number, outcome) = outcome.expect("it ends");
        let key = format!("data/{number:03}");
        let found = store.get(&key).await.expect("readable").is_some();
        match outcome {
            Ok(_) => assert!(found, "{key} was acknowledged"),
            Err(StoreError::Full(_)) => assert!(!found, "{key} was refused"),
            Err(StoreError::OutcomeUnknown(_)) => {}
            Err(other) => panic!("{key}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_member_pauses_while_another_one_is_away() {
    let mut cluster = EtcdCluster::start_with_flags(3, &FLAGS).await;
    let store = store_of(&cluster).await;
    for number in 0..8 {
        store.commit(piece(number)).await.expect("there is room");
    }
    let deleted = store
        .commit(Transaction::new().delete_prefix("data/"))
        .await;
    deleted.expect("there is room");
    store.compact(newest(&store).await).await.expect("compacts");
    let away = (cluster.leader().await + 1) % 3;
    cluster.kill(away);
    let refused = store.reclaim_space().await;
    assert!(
        matches!(refused, Err(StoreError::Unavailable(_))),
        "{refused:?}"
    );
    let space = observed(&store).await;
    assert_eq!(space.members.len(), 2);
    assert!(space.members.iter().all(|it| it.size_bytes > 4_000_000));
    cluster.restart(away).await;
    eventually(async || {
        // A member that was killed during a compaction frees that space with the next one.
        let written = store.commit(Transaction::new().put("small", "x")).await;
        if written.is_ok() {
            let _ = store.compact(newest(&store).await).await;
        }
        let _ = store.reclaim_space().await;
        let space = observed(&store).await;
        space.members.len() == 3 && space.members.iter().all(|it| it.size_bytes < 4_000_000)
    })
    .await;
}
