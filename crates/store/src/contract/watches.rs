//! Tests of watches: order, completeness, history and its end.

use futures::StreamExt;

use super::{commit, delete, describe, get, newest, next_batch, put, text, watch, within};
use crate::{Change, Revision, SharedStore, StoreError, Transaction, WatchStart};

pub async fn a_watch_from_now_sees_what_comes_after_it(store: SharedStore) {
    put(&store, "a", "before").await;
    let mut stream = watch(&store, "a", WatchStart::Now).await;
    let revision = put(&store, "a", "after").await;
    let batch = next_batch(&mut stream).await;
    assert_eq!(batch.revision, revision);
    assert_eq!(
        batch.changes,
        [Change::Put(get(&store, "a").await.expect("there"))]
    );
    let revision = delete(&store, "a").await;
    let batch = next_batch(&mut stream).await;
    assert_eq!(batch.revision, revision);
    assert_eq!(batch.changes, [Change::Delete { key: "a".into() }]);
}

pub async fn a_watch_at_a_revision_starts_with_that_revision(store: SharedStore) {
    let mut revisions = Vec::new();
    for value in ["1", "2", "3", "4"] {
        revisions.push(put(&store, "a", value).await);
    }
    let mut stream = watch(&store, "a", WatchStart::At(revisions[1])).await;
    for (revision, expected) in revisions[1..].iter().zip(["put a=2", "put a=3", "put a=4"]) {
        let batch = next_batch(&mut stream).await;
        assert_eq!(batch.revision, *revision);
        assert_eq!(describe(&batch), expected);
    }
    put(&store, "a", "5").await;
    assert_eq!(describe(&next_batch(&mut stream).await), "put a=5");
}

pub async fn a_watch_at_a_future_revision_waits_for_it(store: SharedStore) {
    let now = put(&store, "a", "0").await;
    let start = Revision(now.0 + 3);
    let mut stream = watch(&store, "a", WatchStart::At(start)).await;
    for value in ["1", "2", "3", "4"] {
        put(&store, "a", value).await;
    }
    let batch = next_batch(&mut stream).await;
    assert_eq!(
        (batch.revision, describe(&batch)),
        (start, "put a=3".into())
    );
    assert_eq!(describe(&next_batch(&mut stream).await), "put a=4");
}

pub async fn a_watch_goes_from_history_to_live_without_gap_or_double(store: SharedStore) {
    const WRITES: u64 = 400;
    let first = put(&store, "n/start", "x").await;
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0..WRITES {
                put(&store, &format!("n/{}", number % 7), number.to_string()).await;
            }
        })
    };
    // Some begin while the writer is still writing, all from the same revision.
    let watchers: Vec<_> = (0..4)
        .map(|turn| {
            let store = store.clone();
            tokio::spawn(async move {
                while newest(&store).await.0 < first.0 + turn * WRITES / 4 {
                    tokio::task::yield_now().await;
                }
                let start = WatchStart::At(Revision(first.0 + 1));
                let mut stream = watch(&store, "n/", start).await;
                for number in 0..WRITES {
                    let batch = next_batch(&mut stream).await;
                    assert_eq!(batch.revision.0, first.0 + 1 + number);
                    let expected = format!("put n/{}={number}", number % 7);
                    assert_eq!(describe(&batch), expected);
                }
            })
        })
        .collect();
    writer.await.expect("the writer ends");
    for watcher in watchers {
        watcher.await.expect("the watcher saw everything");
    }
}

pub async fn a_watch_gives_the_changes_of_a_revision_together_and_in_order(store: SharedStore) {
    for key in ["d/1", "d/2", "gone"] {
        put(&store, key, "x").await;
    }
    let mut stream = watch(&store, "", WatchStart::Now).await;
    let transaction = Transaction::new()
        .put("z", "1")
        .delete("gone")
        .put("a", "2")
        .delete_prefix("d/")
        .delete("nobody")
        .put("m", "3");
    let revision = commit(&store, transaction).await;
    let expected = "put z=1, delete gone, put a=2, delete d/1, delete d/2, put m=3";
    let live = next_batch(&mut stream).await;
    assert_eq!(
        (live.revision, describe(&live)),
        (revision, expected.into())
    );
    let mut again = watch(&store, "", WatchStart::At(revision)).await;
    assert_eq!(next_batch(&mut again).await, live, "history tells the same");
}

pub async fn a_watch_sees_only_its_prefix(store: SharedStore) {
    let start = newest(&store).await;
    let mut stream = watch(&store, "a/", WatchStart::Now).await;
    for key in ["a", "a0", "b/a/", "ä/", "A/"] {
        put(&store, key, "other").await;
    }
    let both = Transaction::new().put("b", "other").put("a/1", "mine");
    commit(&store, both).await;
    put(&store, "a/", "mine too").await;
    let mut history = watch(&store, "a/", WatchStart::At(Revision(start.0 + 1))).await;
    for stream in [&mut stream, &mut history] {
        assert_eq!(describe(&next_batch(stream).await), "put a/1=mine");
        assert_eq!(describe(&next_batch(stream).await), "put a/=mine too");
    }
}

pub async fn watchers_of_many_prefixes_each_see_their_own(store: SharedStore) {
    const WATCHERS: usize = 200;
    let mut streams = Vec::new();
    for number in 0..WATCHERS {
        let prefix = format!("nodes/{number:04}/");
        streams.push(watch(&store, &prefix, WatchStart::Now).await);
    }
    let mut everything = watch(&store, "", WatchStart::Now).await;
    for number in (0..WATCHERS).rev() {
        put(
            &store,
            &format!("nodes/{number:04}/command"),
            number.to_string(),
        )
        .await;
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let expected = format!("put nodes/{number:04}/command={number}");
        assert_eq!(describe(&next_batch(stream).await), expected);
    }
    for number in (0..WATCHERS).rev() {
        let expected = format!("put nodes/{number:04}/command={number}");
        assert_eq!(describe(&next_batch(&mut everything).await), expected);
    }
}

pub async fn a_watcher_that_was_away_for_long_misses_nothing(store: SharedStore) {
    const WRITES: usize = 300;
    let mut stream = watch(&store, "n/", WatchStart::Now).await;
    let value = |number: usize| vec![b'a' + (number % 26) as u8; 20_000];
    for number in 0..WRITES {
        put(&store, &format!("n/{number}"), value(number)).await;
    }
    for number in 0..WRITES {
        let batch = next_batch(&mut stream).await;
        let [Change::Put(entry)] = &batch.changes[..] else {
            panic!("not one put: {} changes", batch.changes.len());
        };
        assert_eq!(entry.key, format!("n/{number}"));
        assert!(entry.value == value(number), "the value of {number}");
    }
}

/// Returns the oldest revision if a watch from `start` fails because its history is gone.
async fn compacted(store: &SharedStore, start: Revision) -> Option<Revision> {
    let error = match store.watch("", WatchStart::At(start)).await {
        Err(error) => error,
        // A backend may notice only when it starts to send.
        Ok(mut stream) => match within("a first batch", stream.next()).await {
            Some(Err(error)) => error,
            _ => return None,
        },
    };
    match error {
        StoreError::Compacted { oldest, .. } => Some(oldest),
        other => panic!("failed otherwise: {other:?}"),
    }
}

pub async fn a_watch_of_compacted_history_is_refused(store: SharedStore) {
    let mut revisions = Vec::new();
    for number in 0..10 {
        revisions.push(put(&store, "a", number.to_string()).await);
    }
    store.compact(revisions[6]).await.expect("it is compacted");
    for early in &revisions[..5] {
        let oldest = compacted(&store, *early).await.expect("it is gone");
        assert!(oldest > *early && oldest <= revisions[6], "oldest {oldest}");
    }
    let mut stream = watch(&store, "a", WatchStart::At(revisions[6])).await;
    for number in 6..10 {
        assert_eq!(
            describe(&next_batch(&mut stream).await),
            format!("put a={number}")
        );
    }
}

pub async fn compaction_keeps_the_newest_values(store: SharedStore) {
    put(&store, "old", "kept").await;
    put(&store, "gone", "x").await;
    delete(&store, "gone").await;
    let mut stream = watch(&store, "a", WatchStart::Now).await;
    let mut last = Revision(0);
    for number in 0..20 {
        last = put(&store, "a", number.to_string()).await;
    }
    store.compact(last).await.expect("it is compacted");
    assert_eq!(text(&store, "old").await.as_deref(), Some("kept"));
    assert_eq!(text(&store, "a").await.as_deref(), Some("19"));
    assert_eq!(get(&store, "gone").await, None);
    let found = get(&store, "a").await.expect("it is there");
    assert_eq!(found.version, 20);
    assert_eq!(newest(&store).await, last);
    assert_eq!(put(&store, "a", "20").await.0, last.0 + 1);
    // An existing watch continues, or reports that it lost its place.
    match within("the watch", stream.next()).await {
        Some(Ok(batch)) => assert_eq!(describe(&batch), "put a=0"),
        Some(Err(StoreError::Compacted { .. })) => {}
        other => panic!("the watch ended otherwise: {other:?}"),
    }
}

pub async fn compaction_of_the_future_is_refused_and_of_the_past_is_nothing(store: SharedStore) {
    for number in 0..5 {
        put(&store, "a", number.to_string()).await;
    }
    let now = newest(&store).await;
    super::is_invalid(store.compact(Revision(now.0 + 1)).await);
    store.compact(now).await.expect("it is compacted");
    store.compact(now).await.expect("there is nothing to do");
    store
        .compact(Revision(now.0 - 2))
        .await
        .expect("there is nothing to do");
}
