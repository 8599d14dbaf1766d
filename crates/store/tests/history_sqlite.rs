//! History in a directory: the contract, restarts, and files of others.

use std::sync::Arc;

use bunraku_store::StoreError;
use bunraku_store::contract::history::{HistorySubject, opaque_head};
use bunraku_store::history::{
    EventChunk, History, HistoryError, HistoryFilter, HistoryPart, HistoryRecord, RecordId,
    SqliteHistory,
};
use bunraku_store::testing::MemoryStore;
use jiff::{SignedDuration, Timestamp};

async fn make_history() -> HistorySubject {
    let directory = tempfile::tempdir().expect("a directory");
    let history = SqliteHistory::open(directory.path().join("history")).await;
    HistorySubject {
        history: Arc::new(history.expect("a new history")),
        store: Arc::new(MemoryStore::new()),
        acknowledge: opaque_head,
        drops_events: true,
        keep: Arc::new(directory),
    }
}

bunraku_store::history_contract_suite!(make_history);

fn day(number: i64) -> Timestamp {
    let first: Timestamp = "2026-03-05T12:00:00Z".parse().expect("a time");
    let hours = SignedDuration::from_hours(24 * number);
    first.checked_add(hours).expect("a time")
}

async fn import(history: &SqliteHistory, number: i64, bytes: usize) {
    let record = HistoryRecord {
        id: RecordId::new("web-1", format!("{number:08x}")),
        at: day(number),
        version: 1,
        status: "succeeded".to_owned(),
        is_problem: false,
        is_closed: true,
        head: vec![1; 500].into(),
    };
    let events = vec![EventChunk {
        first: 0,
        end: 1,
        content: vec![2; bytes].into(),
    }];
    let imported = history.import(record, Vec::new(), events).await;
    imported.expect("imported");
}

#[tokio::test]
async fn everything_is_there_after_a_restart_and_only_one_process_has_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let history = SqliteHistory::open(directory.path()).await.expect("new");
    import(&history, 1, 100).await;
    let second = SqliteHistory::open(directory.path()).await;
    assert!(matches!(
        second.err(),
        Some(HistoryError::Store(StoreError::Locked { .. }))
    ));
    drop(history);
    let history = SqliteHistory::open(directory.path()).await.expect("again");
    let page = history
        .list(&HistoryFilter {
            limit: 10,
            ..Default::default()
        })
        .await;
    assert_eq!(page.expect("readable").records.len(), 1);
}

#[tokio::test]
async fn the_file_stops_growing_once_old_periods_are_dropped() {
    let directory = tempfile::tempdir().expect("a directory");
    let history = SqliteHistory::open(directory.path()).await.expect("new");
    let mut sizes = Vec::new();
    for number in 0..60 {
        for _ in 0..4 {
            import(&history, number, 200 << 10).await;
        }
        history
            .drop_before(HistoryPart::Events, day(number - 14))
            .await
            .expect("dropped");
        let size = std::fs::metadata(directory.path().join("history.sqlite"));
        sizes.push(size.expect("a file").len());
    }
    // Records are kept, and small.
    assert!(sizes[59] < sizes[20] + sizes[20] / 10, "{sizes:?}");
    let page = history
        .list(&HistoryFilter {
            limit: 100,
            ..Default::default()
        })
        .await;
    assert_eq!(page.expect("readable").records.len(), 60);
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(SqliteHistory::open(directory.path()).await.expect("new"));
    let path = directory.path().join("history.sqlite");
    let file = rusqlite::Connection::open(&path).expect("a file");
    file.pragma_update(None, "user_version", 7)
        .expect("written");
    drop(file);
    let before = std::fs::read(&path).expect("a file");
    let refused = SqliteHistory::open(directory.path())
        .await
        .err()
        .expect("refused");
    assert!(
        refused.to_string().contains("schema version 7"),
        "{refused}"
    );
    assert_eq!(std::fs::read(&path).expect("a file"), before);

    let other = tempfile::tempdir().expect("a directory");
    std::fs::write(other.path().join("history.sqlite"), "notes").expect("written");
    assert!(SqliteHistory::open(other.path()).await.is_err());
}
