//! Follows a store whose connection keeps breaking.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bunraku_store::contract::Random;
use bunraku_store::testing::Overlay;
use bunraku_store::{
    Change, EmbeddedOptions, EmbeddedStore, Follow, FollowEvent, Range, RangePage, Revision,
    SharedStore, Store, StoreError, Transaction, WatchBatch, WatchStart, WatchStream,
};
use futures::StreamExt;
use tokio::sync::Notify;

/// A real store behind a bad connection: reads fail. Watches are refused, break after a few batches
/// (with an error or silently), or have lost history.
struct Flaky {
    store: SharedStore,
    random: Arc<Mutex<Random>>,
    loses_history: bool,
    /// The newest revision at which any page was read.
    read_at: Arc<AtomicU64>,
    /// Notified when the snapshot has arrived.
    snapshot: Arc<Notify>,
}

impl Flaky {
    fn fails(&self, one_in: u64) -> Result<(), StoreError> {
        match self.below(one_in) {
            0 => Err(StoreError::Unavailable("the connection broke".into())),
            _ => Ok(()),
        }
    }

    fn below(&self, limit: u64) -> u64 {
        self.random.lock().expect("no panic").below(limit)
    }
}

impl Overlay for Flaky {
    fn inner(&self) -> &SharedStore {
        &self.store
    }

    async fn do_range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.fails(8)?;
        // Small and slow pages, so that many changes happen between two of them.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let page = self.store.range(Range { limit: 8, ..range }).await?;
        self.read_at.fetch_max(page.revision.0, Ordering::SeqCst);
        Ok(page)
    }

    async fn do_watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        self.fails(4)?;
        let stream = self.store.watch(prefix, start).await?;
        let whole = stream.take(usize::try_from(self.below(12)).expect("it fits"));
        let end = match (self.below(3), start) {
            (0, _) => return Ok(Box::pin(whole)),
            (1, WatchStart::At(wanted)) if self.loses_history => StoreError::Compacted {
                wanted,
                oldest: Revision(wanted.0 + 1),
            },
            _ => StoreError::Unavailable("the connection broke".into()),
        };
        let end = futures::stream::once(async move { Err(end) });
        Ok(Box::pin(whole.chain(end)))
    }
}

async fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(directory, EmbeddedOptions::default())
        .await
        .expect("the store opens")
}

async fn write(store: &EmbeddedStore, writes: u64) {
    for number in 0..writes {
        let key = format!("n/{}", (number * 7) % 23);
        let transaction = match number % 5 {
            4 => Transaction::new().delete(key),
            _ => Transaction::new()
                .put(key, number.to_string())
                .put(format!("n/beside/{}", number % 9), "x"),
        };
        store.commit(transaction).await.expect("an answer");
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

async fn write_last(store: &EmbeddedStore) {
    let last = Transaction::new().put("n/last", "x");
    store.commit(last).await.expect("an answer");
}

/// The state that a consumer received.
#[derive(Default)]
struct Told {
    known: BTreeMap<String, Revision>,
    snapshots: usize,
    batches: Vec<WatchBatch>,
}

impl Told {
    async fn follow(&mut self, follow: &mut Follow) {
        let followed = tokio::time::timeout(Duration::from_secs(60), follow.next()).await;
        match followed.expect("in time").expect("it mends what breaks") {
            FollowEvent::Snapshot { items, .. } => {
                self.snapshots += 1;
                let items = items.into_iter();
                self.known = items.map(|item| (item.key, item.modified)).collect();
            }
            FollowEvent::Changes(batch) => {
                for change in &batch.changes {
                    take(&mut self.known, change);
                }
                self.batches.push(batch);
            }
        }
    }
}

/// Follows until everything is known. Returns every change on the way.
async fn follow_all(flaky: Flaky) -> Vec<WatchBatch> {
    let (store, came) = (flaky.store.clone(), Arc::clone(&flaky.snapshot));
    let mut follow = Follow::new(Arc::new(flaky), "n/");
    let mut text = Told::default();
    text.follow(&mut follow).await;
    came.notify_one();
    while !text.known.contains_key("n/last") {
        text.follow(&mut follow).await;
    }
    let page = store.range(Range::prefix("n/")).await.expect("an answer");
    let items = page.items.into_iter();
    let expected: BTreeMap<_, _> = items.map(|item| (item.key, item.modified)).collect();
    // Where the last read took several pages, a change may still arrive.
    while text.known != expected {
        text.follow(&mut follow).await;
    }
    assert_eq!(text.snapshots, 1);
    text.batches
}

fn take(known: &mut BTreeMap<String, Revision>, change: &Change) {
    match change {
        Change::Put(entry) => {
            let before = known.insert(entry.key.clone(), entry.modified);
            assert!(
                before.is_none_or(|before| before < entry.modified),
                "seen twice: {entry:?}"
            );
        }
        Change::Delete { key } => {
            assert!(known.remove(key).is_some(), "{key} was deleted twice");
        }
    }
}

async fn check(loses_history: bool, writes: u64) -> (EmbeddedStore, Revision, Vec<WatchBatch>) {
    let seed = Random::seed();
    println!("BUNRAKU_TEST_SEED={seed}");
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    write(&store, 30).await;
    let (read_at, snapshot) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let flaky = Flaky {
        store: Arc::new(store.clone()),
        read_at: Arc::clone(&read_at),
        snapshot: Arc::clone(&snapshot),
        random: Arc::new(Mutex::new(Random(seed))),
        loses_history,
    };
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            // Half of the writes while the snapshot is read, half of them after.
            write(&store, writes / 2).await;
            snapshot.notified().await;
            write(&store, writes / 2).await;
            write_last(&store).await;
        })
    };
    let batches = follow_all(flaky).await;
    writer.await.expect("the writer ends");
    (store, Revision(read_at.load(Ordering::SeqCst)), batches)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_keeps_breaking_loses_and_doubles_nothing() {
    let (store, read_at, batches) = check(false, 400).await;
    // History was never gone: every single change after the snapshot's last page must have arrived,
    // in order.
    let start = Revision(read_at.0 + 1);
    let mut stream = store
        .watch("n/", WatchStart::At(start))
        .await
        .expect("accepted");
    let settled: Vec<WatchBatch> = batches
        .into_iter()
        .filter(|batch| batch.revision >= start)
        .collect();
    assert!(settled.len() > 50, "most of it came as changes");
    for batch in settled {
        let expected = stream.next().await.expect("a batch").expect("no error");
        assert_eq!(batch, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_that_keeps_getting_lost_loses_and_doubles_no_state() {
    check(true, 400).await;
}

#[tokio::test]
async fn what_waiting_cannot_mend_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    let mut follow = Follow::new(Arc::new(store.clone()), "/no/such/key");
    assert!(matches!(follow.next().await, Err(StoreError::Invalid(_))));
    store.close().await.expect("it closes");
    let mut follow = Follow::new(Arc::new(store), "n/");
    assert!(matches!(follow.next().await, Err(StoreError::Closed)));
}

#[tokio::test]
async fn a_wait_that_is_given_up_loses_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    let mut follow = Follow::new(Arc::new(store.clone()), "n/");
    let mut known = BTreeMap::new();
    let writer = tokio::spawn(async move {
        write(&store, 60).await;
        write_last(&store).await;
    });
    while !known.contains_key("n/last") {
        // Most waits are cancelled early.
        let next = tokio::time::timeout(Duration::from_micros(300), follow.next());
        match next.await {
            Err(_) => {}
            Ok(Ok(FollowEvent::Snapshot { items, .. })) => {
                known.extend(items.into_iter().map(|item| (item.key, item.modified)));
            }
            Ok(Ok(FollowEvent::Changes(batch))) => {
                batch
                    .changes
                    .iter()
                    .for_each(|change| take(&mut known, change));
            }
            Ok(Err(error)) => panic!("{error:?}"),
        }
    }
    writer.await.expect("the writer ends");
}
