//! Three members, whose leader dies again and again.

use bunraku_testkit::eventually;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bunraku_store::etcd::{EtcdOptions, EtcdStore};
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{
    Change, Compare, Follow, FollowEvent, Range, Revision, Store, StoreError, Transaction,
    TransactionOutcome, WatchStart,
};
use futures::StreamExt;

const WRITERS: usize = 6;
const EACH: usize = 60;
const PATIENCE: Duration = Duration::from_secs(120);

fn impatient(cluster: &EtcdCluster) -> EtcdOptions {
    EtcdOptions {
        request_timeout: Duration::from_secs(2),
        retry_for: Duration::from_secs(60),
        ..cluster.options("/failover/")
    }
}

/// Adds one to the counter exactly once, despite all failures. The marker is in the same
/// transaction, so reading it shows the outcome of an attempt.
async fn add_one(store: &EtcdStore, marker: &str, unknown: &AtomicUsize) -> Option<Revision> {
    loop {
        if store
            .get(marker)
            .await
            .expect("reads are repeated")
            .is_some()
        {
            return None;
        }
        let counter = store.get("counter").await.expect("reads are repeated");
        let value: usize = counter.as_ref().map_or(0, |known| {
            std::str::from_utf8(&known.value)
                .expect("text")
                .parse()
                .expect("a number")
        });
        let transaction = Transaction::new()
            .when(Compare::Absent(marker.to_owned()))
            .when_unchanged("counter", counter.as_ref())
            .put("counter", (value + 1).to_string())
            .put(marker, (value + 1).to_string());
        match store.commit(transaction).await {
            Ok(TransactionOutcome::Committed(at)) => return Some(at),
            Ok(TransactionOutcome::Refused(_)) => {}
            Err(StoreError::OutcomeUnknown(_)) => {
                unknown.fetch_add(1, Ordering::Relaxed);
            }
            Err(StoreError::Unavailable(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// Reads the watch until the counter is complete. Returns values by revision.
async fn follow_counter(store: EtcdStore, start: Revision) -> BTreeMap<Revision, usize> {
    let mut watch = store
        .watch("counter", WatchStart::At(start))
        .await
        .expect("watches");
    let (mut seen, mut last) = (BTreeMap::new(), Revision(0));
    while seen.len() < WRITERS * EACH {
        let batch = watch.next().await.expect("goes on").expect("no error");
        assert!(batch.revision > last, "{} after {last}", batch.revision);
        last = batch.revision;
        for change in batch.changes {
            let Change::Put(kv) = change else {
                panic!("nothing is deleted");
            };
            let value = std::str::from_utf8(&kv.value).expect("text");
            seen.insert(batch.revision, value.parse().expect("a number"));
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_and_no_event_is_lost_or_doubled_when_leaders_die() {
    let mut cluster = EtcdCluster::start(3).await;
    let store = EtcdStore::connect(impatient(&cluster))
        .await
        .expect("connects");
    let start = store
        .range(Range::prefix(""))
        .await
        .expect("reads")
        .revision;
    let watcher = tokio::spawn(follow_counter(store.clone(), Revision(start.0 + 1)));

    let unknown = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (unknown, done) = (Arc::clone(&unknown), Arc::clone(&done));
            // Each has its own connections, to the member that it found.
            let options = impatient(&cluster);
            tokio::spawn(async move {
                let store = EtcdStore::connect(options).await.expect("connects");
                let mut acknowledged = Vec::new();
                for number in 0..EACH {
                    let marker = format!("done/{writer}/{number}");
                    let at = add_one(&store, &marker, &unknown).await;
                    acknowledged.push((marker, at));
                    done.fetch_add(1, Ordering::Relaxed);
                }
                acknowledged
            })
        })
        .collect();

    for round in 1..=3 {
        let reaches =
            async |count| eventually(async || done.load(Ordering::Relaxed) >= count).await;
        reaches(round * WRITERS * EACH / 5).await;
        let leader = cluster.leader().await;
        if round == 2 {
            // Silence instead of a closed connection, until writers made progress without it.
            cluster.pause(leader);
            reaches(done.load(Ordering::Relaxed) + 2 * WRITERS).await;
            cluster.resume(leader);
        } else {
            cluster.kill(leader);
            reaches(done.load(Ordering::Relaxed) + WRITERS).await;
            cluster.restart(leader).await;
        }
    }

    let mut acknowledged = Vec::new();
    for writer in writers {
        let part = tokio::time::timeout(PATIENCE, writer)
            .await
            .expect("in time");
        acknowledged.extend(part.expect("writes"));
    }
    let seen = tokio::time::timeout(PATIENCE, watcher)
        .await
        .expect("in time")
        .expect("watches");

    let unknown = unknown.load(Ordering::Relaxed);
    let total = WRITERS * EACH;
    let counter = store.get("counter").await.expect("reads").expect("exists");
    assert_eq!(
        counter.value,
        total.to_string(),
        "{unknown} outcomes were unknown"
    );
    assert_eq!(usize::try_from(counter.version).expect("small"), total);
    let values: Vec<usize> = seen.values().copied().collect();
    assert_eq!(values, (1..=total).collect::<Vec<_>>());
    for (marker, at) in acknowledged {
        let kept = store
            .get(&marker)
            .await
            .expect("reads")
            .expect("was acknowledged");
        if let Some(at) = at {
            assert_eq!(kept.modified, at, "{marker}");
        }
        assert!(seen.contains_key(&kept.modified), "{marker}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_continues_after_all_members_were_away() {
    let mut cluster = EtcdCluster::start(1).await;
    let store = EtcdStore::connect(impatient(&cluster))
        .await
        .expect("connects");
    let mut watch = store.watch("", WatchStart::Now).await.expect("watches");
    let put = |value: &'static str| {
        let store = store.clone();
        async move { store.commit(Transaction::new().put("key", value)).await }
    };
    put("1").await.expect("commits");
    cluster.kill(0);
    let away = tokio::spawn(put("2"));
    cluster.restart(0).await;
    match away.await.expect("ends") {
        Ok(outcome) => assert!(outcome.is_committed()),
        Err(StoreError::OutcomeUnknown(_)) => {}
        Err(other) => panic!("{other}"),
    }
    put("3").await.expect("commits");
    let mut versions = Vec::new();
    loop {
        let batch = tokio::time::timeout(PATIENCE, watch.next())
            .await
            .expect("in time")
            .expect("goes on")
            .expect("no error");
        let [Change::Put(kv)] = &batch.changes[..] else {
            panic!("one put each: {batch:?}");
        };
        versions.push(kv.version);
        if kv.value == "3" {
            break;
        }
    }
    let expected: Vec<u64> = (1..=versions.len() as u64).collect();
    assert_eq!(versions, expected, "each version once");
}

#[tokio::test(flavor = "multi_thread")]
async fn following_outlives_its_member_and_its_history() {
    let mut cluster = EtcdCluster::start(3).await;
    // Asks the first member first, so its watch is at that member too.
    let follower = EtcdStore::connect(impatient(&cluster))
        .await
        .expect("connects");
    let mut writer_options = impatient(&cluster);
    writer_options.endpoints.rotate_left(1);
    let writer = EtcdStore::connect(writer_options).await.expect("connects");
    let put = |number: usize| {
        let writer = writer.clone();
        let key = format!("key/{}", number % 7);
        async move {
            loop {
                let put = Transaction::new().put(key.clone(), number.to_string());
                match writer.commit(put).await {
                    Ok(TransactionOutcome::Committed(at)) => return at,
                    Ok(TransactionOutcome::Refused(_)) => panic!("there was no compare"),
                    // Repeating the same put does no harm here.
                    Err(StoreError::OutcomeUnknown(_) | StoreError::Unavailable(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }
    };
    for number in 0..20 {
        put(number).await;
    }
    let mut follow = Follow::new(Arc::new(follower), "key/");
    let mut view = View::default();
    view.take(follow.next().await.expect("a first view"));
    assert_eq!(view.values.len(), 7);

    cluster.kill(0);
    let mut last = Revision(0);
    for number in 20..170 {
        last = put(number).await;
    }
    // More batches than the watch holds for an absent reader, and a longer absence.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    writer.compact(last).await.expect("compacts");
    for number in 170..200 {
        last = put(number).await;
    }
    let mut batches = 0;
    while view.revision < last {
        batches += 1;
        let next = tokio::time::timeout(PATIENCE, follow.next())
            .await
            .expect("in time");
        view.take(next.expect("waiting mends it"));
    }
    let page = writer.range(Range::prefix("key/")).await.expect("reads");
    let truth: BTreeMap<_, _> = page
        .items
        .into_iter()
        .map(|kv| (kv.key, kv.modified))
        .collect();
    assert_eq!(view.values, truth);
    assert!(
        batches < 180,
        "some of history was gone, so not all of it was seen"
    );
}

/// A follower's view, with a check that nothing comes twice.
#[derive(Default)]
struct View {
    values: BTreeMap<String, Revision>,
    revision: Revision,
}

impl View {
    fn take(&mut self, followed: FollowEvent) {
        let batch = match followed {
            FollowEvent::Snapshot { items, revision } => {
                let items = items.into_iter().map(|kv| (kv.key, kv.modified));
                self.values = items.collect();
                self.revision = revision;
                return;
            }
            FollowEvent::Changes(batch) => batch,
        };
        assert!(
            batch.revision > self.revision,
            "{} came twice",
            batch.revision
        );
        self.revision = batch.revision;
        for change in batch.changes {
            let Change::Put(kv) = change else {
                panic!("nothing is deleted");
            };
            let known = self.values.insert(kv.key.clone(), kv.modified);
            assert!(known < Some(kv.modified), "{} came twice", kv.key);
        }
    }
}

#[tokio::test]
async fn an_unreachable_store_is_a_clear_error() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let endpoint = format!("http://{}", nobody.local_addr().expect("an address"));
    drop(nobody);
    let options = EtcdOptions {
        retry_for: Duration::from_millis(200),
        ..EtcdOptions::new(vec![endpoint.clone()], "/nobody/")
    };
    let error = EtcdStore::connect(options)
        .await
        .err()
        .expect("nobody answers");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let source = std::error::Error::source(&error)
        .expect("a reason")
        .to_string();
    assert_eq!(source, format!("etcd at {endpoint} failed"));
}
