//! Tests of history: its compaction, the space that this frees, and watchers that lag behind.

use bunraku_testkit::eventually;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bunraku_store::{
    EmbeddedOptions, EmbeddedStore, Follow, FollowEvent, Revision, SharedStore, Store, StoreError,
    Transaction, TransactionOutcome, WatchStart,
};
use futures::StreamExt;

const DEADLINE: Duration = Duration::from_secs(60);

async fn put(store: &EmbeddedStore, key: &str, value: impl Into<bytes::Bytes>) -> Revision {
    match store.commit(Transaction::new().put(key, value)).await {
        Ok(TransactionOutcome::Committed(revision)) => revision,
        other => panic!("not committed: {other:?}"),
    }
}

/// Returns the oldest revision that can be watched.
async fn oldest(store: &EmbeddedStore) -> Revision {
    match store.watch("", WatchStart::At(Revision(1))).await.map(drop) {
        Ok(()) => Revision(1),
        Err(StoreError::Compacted { oldest, .. }) => oldest,
        Err(error) => panic!("failed otherwise: {error:?}"),
    }
}

/// Returns a store that keeps nothing recent in memory.
async fn forgetful() -> (tempfile::TempDir, EmbeddedStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = EmbeddedOptions {
        recent_bytes: 0,
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(directory.path(), options).await;
    (directory, store.expect("it opens"))
}

fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("readable");
    let sizes = entries.map(|entry| entry.expect("readable").metadata().map_or(0, |it| it.len()));
    sizes.sum()
}

#[tokio::test]
async fn compaction_gives_its_space_back_to_the_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = EmbeddedStore::open(directory.path(), EmbeddedOptions::default())
        .await
        .expect("it opens");
    let mut last = Revision(0);
    for number in 0..400 {
        last = put(
            &store,
            &format!("k/{}", number % 3),
            vec![number as u8; 50_000],
        )
        .await;
    }
    let database = directory.path().join("store.sqlite");
    let full = size(directory.path());
    assert!(full > 20_000_000, "{full} bytes");
    store.compact(last).await.expect("it is compacted");
    eventually(|| async {
        // The file shrinks when its log is merged, which writes trigger.
        put(&store, "other", vec![0; 100_000]).await;
        store
            .compact(Revision(last.0 + 1))
            .await
            .expect("compacted");
        std::fs::metadata(&database).expect("there").len() < full / 4
    })
    .await;
    store.close().await.expect("it closes");
    let closed = size(directory.path());
    assert!(closed < full / 4, "{closed} of {full} bytes are left");
}

#[tokio::test]
async fn history_beyond_the_limit_is_removed_automatically() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = EmbeddedOptions {
        keep_revisions: 10,
        keep_history_for: Duration::from_secs(3),
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(directory.path(), options)
        .await
        .expect("it opens");
    let mut last = Revision(0);
    for number in 0..50 {
        last = put(&store, "a", number.to_string()).await;
    }
    let expected = Revision(last.0 - 9);
    eventually(|| async { oldest(&store).await >= expected }).await;
    let found = store
        .get("a")
        .await
        .expect("an answer")
        .expect("it is there");
    assert_eq!((found.version, found.modified), (50, last));
}

#[tokio::test]
async fn history_goes_by_age_and_its_last_revision_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = EmbeddedOptions {
        keep_history_for: Duration::from_millis(300),
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(directory.path(), options)
        .await
        .expect("it opens");
    let mut last = Revision(0);
    for number in 0..20 {
        last = put(&store, "a", number.to_string()).await;
    }
    eventually(|| async { oldest(&store).await == last }).await;
    store.close().await.expect("it closes");
    let store = EmbeddedStore::open(directory.path(), EmbeddedOptions::default())
        .await
        .expect("it opens");
    assert_eq!(oldest(&store).await, last, "forgotten is forgotten");
    assert_eq!(put(&store, "a", "next").await.0, last.0 + 1);
}

#[tokio::test]
async fn a_watcher_that_lags_behind_compaction_gets_an_error_and_an_idle_one_does_not() {
    let (_directory, store) = forgetful().await;
    let mut lagging = store
        .watch("busy", WatchStart::Now)
        .await
        .expect("accepted");
    let mut waiting = store
        .watch("quiet", WatchStart::Now)
        .await
        .expect("accepted");
    let mut last = Revision(0);
    for number in 0..100 {
        last = put(&store, "busy", number.to_string()).await;
    }
    store.compact(last).await.expect("it is compacted");
    let shown = lagging.next().await.expect("an item");
    match shown {
        Err(StoreError::Compacted { oldest, .. }) => assert_eq!(oldest, last),
        other => panic!("not told: {other:?}"),
    }
    assert!(lagging.next().await.is_none(), "after an error it ends");
    let revision = put(&store, "quiet", "now").await;
    let batch = tokio::time::timeout(DEADLINE, waiting.next()).await;
    let batch = batch.expect("in time").expect("a batch").expect("no error");
    assert_eq!(batch.revision, revision, "there was nothing for it before");
}

#[tokio::test]
async fn following_returns_the_difference_when_history_is_gone() {
    let (_directory, store) = forgetful().await;
    for key in ["n/same", "n/changed", "n/gone", "n/again"] {
        put(&store, key, "before").await;
    }
    let shared: SharedStore = Arc::new(store.clone());
    let mut follow = Follow::new(shared, "n/");
    assert!(
        matches!(follow.next().await, Ok(FollowEvent::Snapshot { items, .. }) if items.len() == 4)
    );
    // The watch is open and has returned something.
    put(&store, "n/first", "x").await;
    assert!(matches!(follow.next().await, Ok(FollowEvent::Changes(_))));
    for number in 0..10 {
        put(&store, "n/changed", number.to_string()).await;
    }
    let outcome = store
        .commit(Transaction::new().delete("n/gone").delete("n/again"))
        .await;
    assert!(outcome.expect("an answer").is_committed());
    put(&store, "n/again", "after").await;
    let last = put(&store, "n/new", "after").await;
    store.compact(last).await.expect("it is compacted");
    let Ok(FollowEvent::Changes(batch)) = follow.next().await else {
        panic!("no changes");
    };
    let changes: Vec<String> = batch
        .changes
        .iter()
        .map(|change| match change {
            bunraku_store::Change::Put(entry) => {
                format!(
                    "put {}={}",
                    entry.key,
                    String::from_utf8_lossy(&entry.value)
                )
            }
            bunraku_store::Change::Delete { key } => format!("delete {key}"),
        })
        .collect();
    assert_eq!(
        changes,
        [
            "delete n/gone",
            "put n/again=after",
            "put n/changed=9",
            "put n/new=after"
        ]
    );
    put(&store, "n/later", "x").await;
    assert!(
        matches!(follow.next().await, Ok(FollowEvent::Changes(batch)) if batch.changes.len() == 1)
    );
}

/// Returns the memory that this process uses, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    let kilobytes: u64 = number
        .and_then(|number| number.parse().ok())
        .expect("a number");
    kilobytes * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_do_not_read_cost_no_memory_and_miss_nothing() {
    const WATCHERS: usize = 50;
    const WRITES: usize = 150;
    let directory = tempfile::tempdir().expect("a directory");
    let options = EmbeddedOptions {
        recent_bytes: 1 << 20,
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(directory.path(), options)
        .await
        .expect("it opens");
    let mut streams = Vec::new();
    for _ in 0..WATCHERS {
        streams.push(store.watch("", WatchStart::Now).await.expect("accepted"));
    }
    put(&store, "warm", vec![0; 500_000]).await;
    let before = resident();
    for number in 0..WRITES {
        put(&store, &format!("k/{number}"), vec![number as u8; 500_000]).await;
    }
    let grown = resident().saturating_sub(before);
    // One copy of everything is 75 MB; a queue for each watcher would be 3.7 GB.
    assert!(
        grown < 60_000_000,
        "{grown} bytes for watchers that do not read"
    );
    for mut stream in streams.drain(..3) {
        for expected in 0..=WRITES as u64 {
            let batch = stream.next().await.expect("a batch").expect("no error");
            assert_eq!(batch.revision.0, expected + 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_watchers_are_woken_only_for_their_own_prefix() {
    const WATCHERS: usize = 10_000;
    let directory = tempfile::tempdir().expect("a directory");
    let store = EmbeddedStore::open(directory.path(), EmbeddedOptions::default())
        .await
        .expect("it opens");
    let mut streams = Vec::new();
    for number in 0..WATCHERS {
        let prefix = format!("nodes/node-{number}/");
        streams.push(
            store
                .watch(&prefix, WatchStart::Now)
                .await
                .expect("accepted"),
        );
    }
    let writes = (0..1000).map(|number| {
        let store = store.clone();
        async move { put(&store, &format!("nodes/node-{number}/command"), "go").await }
    });
    futures::future::join_all(writes).await;
    for (number, stream) in streams.iter_mut().enumerate() {
        let polled = futures::poll!(stream.next());
        match polled {
            std::task::Poll::Ready(Some(Ok(batch))) => {
                assert!(
                    number < 1000 && batch.changes.len() == 1,
                    "{number}: {batch:?}"
                );
            }
            std::task::Poll::Pending => assert!(number >= 1000, "{number} saw nothing"),
            std::task::Poll::Ready(other) => panic!("{number}: {other:?}"),
        }
    }
    drop(streams);
    put(&store, "nodes/node-1/command", "nobody listens").await;
}
