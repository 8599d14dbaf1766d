//! Behaviour of etcd that the contract does not cover, on one real member.

use std::time::Duration;

use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{
    Change, Compare, Range, Revision, Store, StoreError, Transaction, TransactionOutcome,
    WatchStart, WatchStream,
};
use futures::StreamExt;

const PATIENCE: Duration = Duration::from_secs(60);

async fn store(cluster: &EtcdCluster, root: &str) -> EtcdStore {
    EtcdStore::connect(cluster.options(root))
        .await
        .expect("etcd answers")
}

async fn put(store: &EtcdStore, key: &str, value: impl Into<bytes::Bytes>) -> Revision {
    let put = Transaction::new().put(key, value);
    match store.commit(put).await.expect("commits") {
        TransactionOutcome::Committed(revision) => revision,
        TransactionOutcome::Refused(_) => panic!("there was no compare"),
    }
}

async fn next(watch: &mut WatchStream) -> Result<bunraku_store::WatchBatch, StoreError> {
    tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("something happens in time")
        .expect("the watch goes on")
}

/// One member for all of these checks: starting it takes longer than they do.
#[tokio::test(flavor = "multi_thread")]
async fn one_member_keeps_its_particulars_behind_the_contract() {
    let cluster = EtcdCluster::start(1).await;
    roots_do_not_see_each_other(&cluster).await;
    a_large_range_comes_in_pages(&cluster).await;
    everything_that_a_loser_asked_for_comes_at_once(&cluster).await;
    a_revision_that_comes_in_fragments_stays_whole(&cluster).await;
    a_reader_that_lags_misses_nothing(&cluster).await;
    leases_are_rounded_up(&cluster).await;
    compacting_twice_is_fine_and_the_future_is_not(&cluster).await;
    a_reader_that_lags_behind_compaction_is_told(&cluster).await;
}

async fn roots_do_not_see_each_other(cluster: &EtcdCluster) {
    let one = store(cluster, "/root/").await;
    let other = store(cluster, "/root0/").await;
    let mut watch = one.watch("", WatchStart::Now).await.expect("watches");
    put(&other, "key", "other").await;
    put(&one, "key", "one").await;
    let batch = next(&mut watch).await.expect("an event");
    assert_eq!(batch.changes.len(), 1);
    assert!(matches!(&batch.changes[0], Change::Put(kv) if kv.key == "key" && kv.value == "one"));
    let all = one.range(Range::prefix("")).await.expect("reads").items;
    assert_eq!(all.len(), 1);
    let wipe = Transaction::new().delete_prefix("");
    one.commit(wipe).await.expect("commits");
    assert!(one.get("key").await.expect("reads").is_none());
    assert!(other.get("key").await.expect("reads").is_some());
}

async fn a_large_range_comes_in_pages(cluster: &EtcdCluster) {
    let store = store(cluster, "/pages/").await;
    let value = bytes::Bytes::from(vec![7; 1_000_000]);
    for number in 0..40 {
        put(&store, &format!("large/{number:02}"), value.clone()).await;
    }
    let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let range = Range {
            after: after.clone(),
            ..Range::prefix("large/")
        };
        let page = store.range(range).await.expect("a page");
        seen.extend(page.items.into_iter().map(|item| item.key));
        pages += 1;
        after = seen.last().cloned();
        if !page.more {
            break;
        }
    }
    let expected: Vec<_> = (0..40).map(|number| format!("large/{number:02}")).collect();
    assert_eq!(seen, expected);
    assert!(pages > 1, "forty megabytes are more than one page");
    let past = Range {
        after: Some("z".to_owned()),
        ..Range::prefix("large/")
    };
    assert!(store.range(past).await.expect("a page").items.is_empty());
    let before = Range {
        after: Some("a".to_owned()),
        limit: 1,
        keys_only: true,
        ..Range::prefix("large/")
    };
    assert_eq!(
        store.range(before).await.expect("a page").items[0].key,
        "large/00"
    );
}

async fn everything_that_a_loser_asked_for_comes_at_once(cluster: &EtcdCluster) {
    let store = store(cluster, "/pages/").await;
    let missing = Compare::Exists("missing".to_owned());
    let transaction = (0..40).fold(Transaction::new().when(missing), |reads, number| {
        reads.read_on_failure(format!("large/{number:02}"))
    });
    match store.commit(transaction).await.expect("answers") {
        TransactionOutcome::Refused(read) => {
            assert_eq!(read.into_iter().flatten().count(), 40);
        }
        TransactionOutcome::Committed(_) => panic!("the compare does not hold"),
    }
}

async fn a_revision_that_comes_in_fragments_stays_whole(cluster: &EtcdCluster) {
    let store = store(cluster, "/fragments/").await;
    let value = bytes::Bytes::from(vec![1; 450_000]);
    let mut first = None;
    for number in 0..12 {
        let three = (0..3).fold(Transaction::new(), |three, part| {
            three.put(format!("{number:02}/{part}"), value.clone())
        });
        match store.commit(three).await.expect("commits") {
            TransactionOutcome::Committed(at) => first = first.or(Some(at)),
            TransactionOutcome::Refused(_) => panic!("there was no compare"),
        }
    }
    let first = first.expect("something was written");
    let mut watch = store
        .watch("", WatchStart::At(first))
        .await
        .expect("watches");
    for number in 0..12 {
        let batch = next(&mut watch).await.expect("a batch");
        let keys: Vec<_> = batch
            .changes
            .iter()
            .map(|change| match change {
                Change::Put(kv) => kv.key.clone(),
                Change::Delete { key } => panic!("{key} was deleted"),
            })
            .collect();
        let expected: Vec<_> = (0..3).map(|part| format!("{number:02}/{part}")).collect();
        assert_eq!(keys, expected, "revision {}", batch.revision);
    }
}

async fn a_reader_that_lags_misses_nothing(cluster: &EtcdCluster) {
    let store = store(cluster, "/lagging/").await;
    let mut watch = store.watch("", WatchStart::Now).await.expect("watches");
    let mut written = Vec::new();
    for number in 0..300 {
        written.push(put(&store, "key", number.to_string()).await);
    }
    // Longer than a full buffer keeps the stream open.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for expected in written {
        assert_eq!(next(&mut watch).await.expect("a batch").revision, expected);
    }
}

async fn a_reader_that_lags_behind_compaction_is_told(cluster: &EtcdCluster) {
    let store = store(cluster, "/behind/").await;
    let mut watch = store.watch("", WatchStart::Now).await.expect("watches");
    let mut last = Revision(0);
    for number in 0..300 {
        last = put(&store, "key", number.to_string()).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    store.compact(last).await.expect("compacts");
    let mut before = Revision(0);
    loop {
        match next(&mut watch).await {
            Ok(batch) => {
                assert!(batch.revision > before);
                before = batch.revision;
                assert!(before < last, "what is gone cannot be read");
            }
            Err(StoreError::Compacted { wanted, oldest }) => {
                assert_eq!(wanted, Revision(before.0 + 1));
                assert_eq!(oldest, last);
                break;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

async fn leases_are_rounded_up(cluster: &EtcdCluster) {
    let store = store(cluster, "/leases/").await;
    let lease = store
        .lease_grant(Duration::from_millis(60_001))
        .await
        .expect("a lease");
    let status = store
        .lease_status(lease)
        .await
        .expect("reads")
        .expect("it lasts");
    assert_eq!(status.granted, Duration::from_secs(61));
    store.lease_revoke(lease).await.expect("revokes");
    let gone = store
        .commit(Transaction::new().put_with_lease("key", "", lease))
        .await;
    assert!(
        matches!(gone, Err(StoreError::LeaseNotFound(id)) if id == lease),
        "{gone:?}"
    );
}

async fn compacting_twice_is_fine_and_the_future_is_not(cluster: &EtcdCluster) {
    let store = store(cluster, "/compact/").await;
    let first = put(&store, "key", "1").await;
    let second = put(&store, "key", "2").await;
    store.compact(second).await.expect("compacts");
    store.compact(second).await.expect("is done already");
    store.compact(first).await.expect("is done already");
    let future = store.compact(Revision(second.0 + 1000)).await;
    assert!(matches!(future, Err(StoreError::Invalid(_))), "{future:?}");
    let mut watch = store
        .watch("", WatchStart::At(second))
        .await
        .expect("watches");
    assert_eq!(next(&mut watch).await.expect("is kept").revision, second);
    let value = Compare::Value("key".to_owned(), "2".into());
    let kept = store
        .commit(Transaction::new().when(value))
        .await
        .expect("compares");
    assert!(kept.is_committed());
}

#[tokio::test]
async fn lower_limits_of_a_server_are_respected() {
    let flags = ["--max-txn-ops=16", "--max-request-bytes=65536"];
    let cluster = EtcdCluster::start_with_flags(1, &flags).await;
    let store = store(&cluster, "/limits/").await;
    let many = (0..17).fold(Transaction::new(), |many, number| {
        many.put(format!("key/{number}"), "")
    });
    let large = Transaction::new().put("large", vec![0; 100_000]);
    for transaction in [many, large] {
        let refused = store.commit(transaction).await;
        assert!(
            matches!(refused, Err(StoreError::TooLarge { .. })),
            "{refused:?}"
        );
    }
    assert!(
        store
            .range(Range::prefix(""))
            .await
            .expect("reads")
            .items
            .is_empty()
    );
}
