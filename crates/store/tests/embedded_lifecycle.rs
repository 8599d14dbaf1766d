//! Tests of opening, closing and ownership.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bunraku_store::{
    EmbeddedOptions, EmbeddedStore, Follow, FollowEvent, Range, Revision, SharedStore, Store,
    StoreError, Transaction, TransactionOutcome, WatchStart,
};
use futures::StreamExt;

async fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(directory, EmbeddedOptions::default())
        .await
        .expect("the store opens")
}

async fn put(store: &EmbeddedStore, key: &str, value: &str) -> Revision {
    match store
        .commit(Transaction::new().put(key, value.to_owned()))
        .await
    {
        Ok(TransactionOutcome::Committed(revision)) => revision,
        other => panic!("not committed: {other:?}"),
    }
}

#[tokio::test]
async fn everything_is_there_after_closing_and_opening() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deep/er/store");
    let store = open(&path).await;
    let first = put(&store, "a", "1").await;
    let second = put(&store, "b", "2").await;
    store.close().await.expect("it closes");
    drop(store);
    let store = open(&path).await;
    let found = store
        .get("a")
        .await
        .expect("an answer")
        .expect("it is there");
    assert_eq!((found.created, found.version), (first, 1));
    assert_eq!(put(&store, "a", "3").await.0, second.0 + 1);
    let mut stream = store
        .watch("", WatchStart::At(first))
        .await
        .expect("history is there");
    for expected in first.0..=second.0 + 1 {
        let batch = stream.next().await.expect("a batch").expect("no error");
        assert_eq!(batch.revision.0, expected);
    }
}

#[tokio::test]
async fn the_files_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let store = open(&path).await;
    put(&store, "secret", "x").await;
    let mode = |path: &Path| {
        let metadata = std::fs::metadata(path).expect("it is there");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode(&path), 0o700);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).expect("readable") {
        let entry = entry.expect("readable").path();
        assert_eq!(mode(&entry), 0o600, "{}", entry.display());
        names.push(entry.file_name().expect("a name").to_owned());
    }
    assert!(
        names.iter().any(|name| name == "store.sqlite-wal"),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_second_owner_is_refused_and_the_first_one_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(env!("CARGO_BIN_EXE_bunraku-store-writer"))
        .arg(directory.path())
        .args(["1", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the writer starts");
    let output = child.stdout.take().expect("it is piped");
    // Kept open: the writer ends when nobody reads what it writes.
    let mut output = std::io::BufReader::new(output);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).expect("it says something");
    assert!(line.starts_with("open "), "{line}");
    let options = EmbeddedOptions {
        lock_wait: Duration::from_millis(100),
        ..EmbeddedOptions::default()
    };
    let refused = EmbeddedStore::open(directory.path(), options).await;
    child.kill().expect("it is ours to kill");
    let pid = child.id();
    child.wait().expect("it ended");
    drop(output);
    match refused.map(drop) {
        Err(StoreError::Locked { owner, .. }) => assert_eq!(owner, format!("process {pid}")),
        other => panic!("not refused: {other:?}"),
    }
    // The lock was released with its owner.
    open(directory.path()).await;
}

#[tokio::test]
async fn a_second_open_in_the_same_process_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    let options = EmbeddedOptions {
        lock_wait: Duration::ZERO,
        ..EmbeddedOptions::default()
    };
    let second = EmbeddedStore::open(directory.path(), options).await;
    assert!(matches!(second, Err(StoreError::Locked { .. })));
    put(&store, "a", "the first goes on").await;
}

#[tokio::test]
async fn a_closed_store_refuses_everything_and_ends_its_watches() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    put(&store, "a", "1").await;
    let mut stream = store.watch("", WatchStart::Now).await.expect("accepted");
    let shared: SharedStore = Arc::new(store.clone());
    let mut follow = Follow::new(shared, "");
    assert!(matches!(
        follow.next().await,
        Ok(FollowEvent::Snapshot { .. })
    ));
    let waiting = tokio::spawn(async move { stream.next().await });
    store.close().await.expect("it closes");
    let ended = waiting.await.expect("no panic");
    assert!(matches!(ended, Some(Err(StoreError::Closed))), "{ended:?}");
    assert!(matches!(follow.next().await, Err(StoreError::Closed)));
    assert!(matches!(store.get("a").await, Err(StoreError::Closed)));
    let range = store.range(Range::prefix("")).await;
    assert!(matches!(range, Err(StoreError::Closed)));
    let commit = store.commit(Transaction::new().put("a", "2")).await;
    assert!(matches!(commit, Err(StoreError::Closed)), "{commit:?}");
    assert!(matches!(store.close().await, Err(StoreError::Closed)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_finishes_what_was_asked_for_before() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    let writers: Vec<_> = (0..200)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let key = format!("k/{number}");
                store.commit(Transaction::new().put(key, "x")).await
            })
        })
        .collect();
    tokio::task::yield_now().await;
    store.close().await.expect("it closes");
    let mut done = 0;
    for writer in writers {
        match writer.await.expect("no panic") {
            Ok(_) => done += 1,
            Err(StoreError::Closed) => {}
            Err(error) => panic!("neither done nor refused: {error:?}"),
        }
    }
    let store = open(directory.path()).await;
    let page = store.range(Range::prefix("k/")).await.expect("an answer");
    assert_eq!(page.items.len(), done, "what was acknowledged, and no more");
}

#[tokio::test]
async fn dropping_every_handle_closes_the_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    let clone = store.clone();
    put(&store, "a", "1").await;
    let mut stream = clone.watch("", WatchStart::Now).await.expect("accepted");
    drop(store);
    put(&clone, "a", "2").await;
    assert!(
        matches!(stream.next().await, Some(Ok(_))),
        "a handle is left"
    );
    drop(clone);
    assert!(matches!(stream.next().await, Some(Err(StoreError::Closed))));
    let store = open(directory.path()).await;
    let found = store
        .get("a")
        .await
        .expect("an answer")
        .expect("it is there");
    assert_eq!(found.value, "2");
    assert!(
        !directory.path().join("store.sqlite.new").exists(),
        "nothing is left of the making"
    );
}

#[tokio::test]
async fn an_abandoned_request_is_still_processed() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    {
        let commit = store.commit(Transaction::new().put("a", "1"));
        // Polled once: the request is sent. Then its owner loses interest.
        let polled = futures::poll!(std::pin::pin!(commit));
        drop(polled);
    }
    put(&store, "b", "2").await;
    assert!(store.get("a").await.expect("an answer").is_some());
}
