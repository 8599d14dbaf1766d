//! Damaged files: the result is an error, never a panic, and never a silent loss of acknowledged
//! data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bunraku_store::contract::Random;
use bunraku_store::{
    EmbeddedOptions, EmbeddedStore, KeyValue, Range, Revision, Store, StoreError, Transaction,
    WatchBatch, WatchStart,
};
use futures::StreamExt;
use tempfile::TempDir;

/// Few enough that the log is not yet merged into the file.
const WRITES: u64 = 100;

async fn open(directory: &Path) -> Result<EmbeddedStore, StoreError> {
    open_with(directory, EmbeddedOptions::default()).await
}

async fn open_with(
    directory: &Path,
    options: EmbeddedOptions,
) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(directory, options).await
}

async fn fill(store: &EmbeddedStore) {
    let lease = store
        .lease_grant(Duration::from_secs(3600))
        .await
        .expect("granted");
    for number in 0..WRITES {
        let transaction = Transaction::new()
            .put(
                format!("a/{}", number % 50),
                format!("value {number}").repeat(20),
            )
            .put_with_lease(format!("b/{}", number % 3), vec![b'z'; 3000], lease)
            .delete(format!("a/{}", number % 11));
        // A transaction that puts and deletes the same key is refused: leave those out.
        if number % 50 == number % 11 {
            continue;
        }
        let outcome = store.commit(transaction).await.expect("an answer");
        assert!(outcome.is_committed());
    }
}

/// Returns a store that was closed in order.
async fn closed() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await.expect("it opens");
    fill(&store).await;
    store.close().await.expect("it closes");
    directory
}

/// Returns a copy of a store in the middle of its work, with a log, as after a kill.
async fn interrupted() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await.expect("it opens");
    fill(&store).await;
    let copy = copy(directory.path());
    let length = log(copy.path()).metadata().expect("a log").len();
    assert!(
        (100_000..4_000_000).contains(&length),
        "{length} bytes of log"
    );
    copy
}

fn copy(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("a directory");
    for entry in std::fs::read_dir(directory).expect("readable") {
        let entry = entry.expect("readable");
        // The shared memory of a live process means nothing to another process.
        if entry.file_name() != "store.sqlite-shm" {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
        }
    }
    copy
}

fn database(directory: &Path) -> PathBuf {
    directory.join("store.sqlite")
}

fn log(directory: &Path) -> PathBuf {
    directory.join("store.sqlite-wal")
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("readable");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("writable");
}

/// Returns all readable content of the store: its keys and its history.
async fn content(store: &EmbeddedStore) -> Result<(Vec<KeyValue>, Vec<WatchBatch>), StoreError> {
    let page = store.range(Range::prefix("")).await?;
    assert!(!page.more);
    let mut stream = store.watch("", WatchStart::At(Revision(1))).await?;
    let mut history = Vec::new();
    while history
        .last()
        .map_or(0, |batch: &WatchBatch| batch.revision.0)
        < page.revision.0
    {
        history.push(stream.next().await.expect("a batch")?);
    }
    Ok((page.items, history))
}

/// Checks that opening fails as damaged, and that the files stay unchanged.
async fn is_damaged(directory: &Path, what: &str) {
    let files = || -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(directory).expect("readable");
        let paths = entries.map(|entry| entry.expect("readable").path());
        paths
            .filter(|path| !path.ends_with("lock") && !path.ends_with("store.sqlite-shm"))
            .map(|path| (path.clone(), std::fs::read(path).expect("readable")))
            .filter(|(_, bytes)| !bytes.is_empty())
            .collect()
    };
    let before = files();
    for _ in 0..2 {
        match open(directory).await.map(drop) {
            Err(StoreError::Damaged { .. }) => {}
            other => panic!("{what}: not damaged: {other:?}"),
        }
        assert!(files() == before, "{what}: the files were touched");
    }
}

#[tokio::test]
async fn a_file_that_is_something_else_is_damaged() {
    let whole = closed().await;
    let cases: [(&str, Vec<u8>); 4] = [
        ("nothing", vec![]),
        ("a word", b"hello".to_vec()),
        ("zeros", vec![0; 40_960]),
        ("text", b"SQLite format 2\0 ".repeat(1000)),
    ];
    for (what, bytes) in cases {
        let copy = copy(whole.path());
        std::fs::write(database(copy.path()), bytes).expect("writable");
        is_damaged(copy.path(), what).await;
    }
}

#[tokio::test]
async fn another_programs_database_is_damaged_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let other = rusqlite::Connection::open(database(directory.path())).expect("it opens");
    other
        .execute_batch("CREATE TABLE notes(text); INSERT INTO notes VALUES ('mine')")
        .expect("it is written");
    drop(other);
    is_damaged(directory.path(), "another's").await;
}

#[tokio::test]
async fn a_changed_table_is_damaged() {
    let directory = closed().await;
    let other = rusqlite::Connection::open(database(directory.path())).expect("it opens");
    other
        .execute_batch("DROP INDEX keys_by_lease")
        .expect("it is written");
    drop(other);
    is_damaged(directory.path(), "without an index").await;
}

#[tokio::test]
async fn a_file_cut_short_anywhere_is_damaged() {
    let whole = closed().await;
    let length = std::fs::metadata(database(whole.path()))
        .expect("there")
        .len();
    for left in [
        0,
        1,
        99,
        100,
        4095,
        4096,
        8192,
        length / 2,
        length - 4096,
        length - 1,
    ] {
        let copy = copy(whole.path());
        change(&database(copy.path()), |bytes| {
            bytes.truncate(usize::try_from(left).expect("it fits"));
        });
        is_damaged(copy.path(), &format!("{left} of {length} bytes")).await;
    }
}

#[tokio::test]
async fn a_missing_file_is_damaged_when_something_was_acknowledged() {
    let directory = closed().await;
    std::fs::remove_file(database(directory.path())).expect("removed");
    is_damaged(directory.path(), "missing").await;
}

#[tokio::test]
async fn a_later_format_is_refused_by_its_number() {
    let directory = closed().await;
    let other = rusqlite::Connection::open(database(directory.path())).expect("it opens");
    other
        .pragma_update(None, "user_version", 7)
        .expect("it is written");
    drop(other);
    match open(directory.path()).await.map(drop) {
        Err(StoreError::NewerFormat {
            found: 7,
            supported: 1,
            ..
        }) => {}
        other => panic!("not refused: {other:?}"),
    }
}

/// Flips one bit at a time. Each time, the content is unchanged or there is an error.
async fn flip_bits(options: EmbeddedOptions, rounds: u64) {
    let seed = Random::seed();
    println!("BUNRAKU_TEST_SEED={seed}");
    let mut random = Random(seed);
    let whole = closed().await;
    let store = open(whole.path()).await.expect("it opens");
    let expected = content(&store).await.expect("it is whole");
    store.close().await.expect("it closes");
    let length = std::fs::metadata(database(whole.path()))
        .expect("there")
        .len();
    let mut damaged = 0;
    for round in 0..rounds {
        let copy = copy(whole.path());
        // The header bit by bit, then anywhere.
        let bit = match round {
            0..100 => round * 8 + random.below(8),
            _ => random.below(length * 8),
        };
        change(&database(copy.path()), |bytes| {
            bytes[usize::try_from(bit / 8).expect("it fits")] ^= 1 << (bit % 8);
        });
        let found = match open_with(copy.path(), options.clone()).await {
            Ok(store) => content(&store).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => assert!(found == expected, "seed {seed}: bit {bit} changed content"),
            Err(
                StoreError::Damaged { .. } | StoreError::NewerFormat { .. } | StoreError::Io { .. },
            ) => damaged += 1,
            Err(error) => panic!("seed {seed}: bit {bit}: {error:?}"),
        }
    }
    println!("{damaged} of {rounds} flipped bits were noticed; the others lie in unused space");
    assert!(
        damaged > rounds / 4,
        "seed {seed}: only {damaged} were noticed"
    );
}

#[tokio::test]
async fn a_flipped_bit_is_noticed_when_the_store_opens() {
    flip_bits(EmbeddedOptions::default(), 500).await;
}

#[tokio::test]
async fn a_value_that_rotted_in_a_large_file_is_noticed_when_it_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await.expect("it opens");
    for (key, value) in [("good", "unharmed"), ("bad", "to be harmed in its file")] {
        let outcome = store.commit(Transaction::new().put(key, value)).await;
        assert!(outcome.expect("an answer").is_committed());
    }
    store.close().await.expect("it closes");
    change(&database(directory.path()), |bytes| {
        let needle = b"to be harmed";
        for place in 0..bytes.len() - needle.len() {
            if bytes[place..].starts_with(needle) {
                bytes[place] ^= 4;
            }
        }
    });
    is_damaged(directory.path(), "a small file is read whole").await;
    let options = EmbeddedOptions {
        verify_up_to_bytes: 0,
        ..EmbeddedOptions::default()
    };
    let store = open_with(directory.path(), options)
        .await
        .expect("it opens");
    assert!(store.get("good").await.expect("an answer").is_some());
    let read = store.get("bad").await;
    assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
    let range = store.range(Range::prefix("")).await;
    assert!(
        matches!(range, Err(StoreError::Damaged { .. })),
        "{range:?}"
    );
    let history = store.watch("bad", WatchStart::At(Revision(1))).await;
    let first = history.expect("accepted").next().await;
    assert!(
        matches!(first, Some(Err(StoreError::Damaged { .. }))),
        "{first:?}"
    );
    // Requests that depend on the damaged value are refused. The rest works, even when both arrive
    // at once and share a commit.
    let writes = (0..40).map(|number| {
        let key = if number % 10 == 5 { "bad" } else { "good" };
        let compare = bunraku_store::Compare::Exists(key.to_owned());
        let transaction = Transaction::new().when(compare);
        store.commit(transaction.put(format!("x/{number}"), "y"))
    });
    let outcomes = futures::future::join_all(writes).await;
    for (number, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(outcome) => assert!(number % 10 != 5 && outcome.is_committed()),
            Err(StoreError::Damaged { .. }) => assert_eq!(number % 10, 5),
            Err(error) => panic!("{number}: {error:?}"),
        }
    }
    let page = store.range(Range::prefix("x/")).await.expect("an answer");
    assert_eq!(page.items.len(), 36);
}

#[tokio::test]
async fn a_log_as_a_kill_leaves_it_is_taken_whole() {
    let directory = interrupted().await;
    let store = open(directory.path()).await.expect("it opens");
    let (keys, history) = content(&store).await.expect("it is whole");
    assert!(!keys.is_empty() && history.len() > 50);
}

#[tokio::test]
async fn an_unacknowledged_write_cut_in_the_log_is_not_damage() {
    let directory = interrupted().await;
    change(&log(directory.path()), |bytes| {
        bytes.extend_from_slice(&vec![0x5a; 4096 + 100]);
    });
    let store = open(directory.path()).await.expect("it opens");
    content(&store).await.expect("it is whole");
}

#[tokio::test]
async fn a_log_that_lost_acknowledged_writes_is_damaged() {
    let whole = interrupted().await;
    let length = std::fs::metadata(log(whole.path())).expect("there").len();
    for left in [0, 10, 32, length / 3, length - 4096, length - 1] {
        let copy = copy(whole.path());
        change(&log(copy.path()), |bytes| {
            bytes.truncate(usize::try_from(left).expect("it fits"));
        });
        is_damaged(copy.path(), &format!("{left} of {length} bytes of log")).await;
    }
    for place in [0, 20, length / 3, length / 2, length - 5000] {
        let copy = copy(whole.path());
        change(&log(copy.path()), |bytes| {
            bytes[usize::try_from(place).expect("it fits")] ^= 16;
        });
        is_damaged(copy.path(), &format!("byte {place} of the log")).await;
    }
    let copy = copy(whole.path());
    std::fs::remove_file(log(copy.path())).expect("removed");
    is_damaged(copy.path(), "no log").await;
}

#[tokio::test]
async fn removing_the_witness_accepts_what_is_left() {
    let directory = interrupted().await;
    std::fs::remove_file(log(directory.path())).expect("removed");
    std::fs::remove_file(directory.path().join("acknowledged")).expect("removed");
    let store = open(directory.path()).await.expect("it opens");
    let outcome = store.commit(Transaction::new().put("a", "again")).await;
    assert!(outcome.expect("an answer").is_committed());
}

#[tokio::test]
async fn a_witness_that_is_something_else_is_damaged() {
    let whole = closed().await;
    for text in ["", "x", "00000000000000000012 00000000\n"] {
        let copy = copy(whole.path());
        std::fs::write(copy.path().join("acknowledged"), text).expect("writable");
        is_damaged(copy.path(), &format!("witness {text:?}")).await;
    }
}
