//! Following a store whose connection keeps breaking.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bunraku_store::contract::Random;
use bunraku_store::{
    Change, EmbeddedOptions, EmbeddedStore, Follow, Followed, KeyValue, LeaseId, LeaseStatus,
    Range, RangePage, Revision, Store, StoreError, Transaction, TransactionOutcome, WatchBatch,
    WatchStart, WatchStream,
};
use futures::StreamExt;

/// A real store behind a bad connection: reads fail, watches are refused, break
/// after a few batches with an error or without a word, or have lost history.
struct Flaky {
    store: EmbeddedStore,
    random: Arc<Mutex<Random>>,
    loses_history: bool,
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

#[async_trait]
impl Store for Flaky {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.store.get(key).await
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.fails(8)?;
        // Small pages, so that much happens between two of them.
        self.store.range(Range { limit: 8, ..range }).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        self.store.commit(transaction).await
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
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

    async fn lease_grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.store.lease_grant(ttl).await
    }

    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.lease_keep_alive(lease).await
    }

    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.lease_revoke(lease).await
    }

    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError> {
        self.store.lease_status(lease).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }
}

async fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(directory, EmbeddedOptions::default())
        .await
        .expect("the store opens")
}

async fn write(store: EmbeddedStore, writes: u64) {
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
    store
        .commit(Transaction::new().put("n/last", "x"))
        .await
        .expect("an answer");
}

/// Follows until the last write; what was known in the end, and every change.
async fn follow_all(
    store: Flaky,
) -> (
    BTreeMap<String, Revision>,
    Option<Revision>,
    Vec<WatchBatch>,
) {
    let mut follow = Follow::new(Arc::new(store), "n/");
    let (mut known, mut snapshot, mut batches) = (BTreeMap::new(), None, Vec::new());
    while !known.contains_key("n/last") {
        let followed = tokio::time::timeout(Duration::from_secs(60), follow.next()).await;
        match followed.expect("in time").expect("it mends what breaks") {
            Followed::Snapshot { items, revision } => {
                assert_eq!(snapshot.replace(revision), None, "one snapshot");
                known = items
                    .into_iter()
                    .map(|item| (item.key, item.modified))
                    .collect();
            }
            Followed::Changes(batch) => {
                for change in &batch.changes {
                    take(&mut known, change);
                }
                batches.push(batch);
            }
        }
    }
    (known, snapshot, batches)
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

async fn check(
    loses_history: bool,
    writes: u64,
) -> (EmbeddedStore, Option<Revision>, Vec<WatchBatch>) {
    let seed = Random::seed();
    println!("BUNRAKU_TEST_SEED={seed}");
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    write(store.clone(), 30).await;
    let gone = store.commit(Transaction::new().delete("n/last")).await;
    assert!(gone.expect("an answer").is_committed());
    let flaky = Flaky {
        store: store.clone(),
        random: Arc::new(Mutex::new(Random(seed))),
        loses_history,
    };
    let writer = tokio::spawn(write(store.clone(), writes));
    let (known, snapshot, batches) = follow_all(flaky).await;
    writer.await.expect("the writer ends");
    let page = store.range(Range::prefix("n/")).await.expect("an answer");
    let expected: BTreeMap<_, _> = page
        .items
        .into_iter()
        .map(|item| (item.key, item.modified))
        .collect();
    assert_eq!(known, expected, "seed {seed}");
    (store, snapshot, batches)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_keeps_breaking_loses_and_doubles_nothing() {
    let (store, snapshot, batches) = check(false, 400).await;
    // History was never gone: every single change must have come, in order.
    let start = snapshot.expect("a snapshot came").0 + 1;
    let mut stream = store
        .watch("n/", WatchStart::At(Revision(start)))
        .await
        .expect("accepted");
    let last = batches.last().expect("there were changes").revision;
    let mut expected = Vec::new();
    loop {
        let batch = stream.next().await.expect("a batch").expect("no error");
        let revision = batch.revision;
        expected.push(batch);
        if revision >= last {
            break;
        }
    }
    // The snapshot took several pages: what its later pages showed comes only once.
    let settled = batches
        .iter()
        .skip_while(|batch| batch.revision.0 < start + 40);
    let expected = expected
        .iter()
        .skip_while(|batch| batch.revision.0 < start + 40);
    assert!(
        settled.eq(expected),
        "a change was lost, doubled or out of order"
    );
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
    let writer = tokio::spawn(write(store, 60));
    while !known.contains_key("n/last") {
        // Most waits are cut short.
        let next = tokio::time::timeout(Duration::from_micros(300), follow.next());
        match next.await {
            Err(_) => {}
            Ok(Ok(Followed::Snapshot { items, .. })) => {
                known.extend(items.into_iter().map(|item| (item.key, item.modified)));
            }
            Ok(Ok(Followed::Changes(batch))) => {
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
