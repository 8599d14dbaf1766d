//! Tests of `Follow` on this backend, during concurrent writes and compaction.

use std::collections::BTreeMap;

use super::{commit, delete, describe, newest, put, within};
use crate::{Change, Follow, FollowEvent, Revision, SharedStore, Transaction, WatchBatch};

async fn next(follow: &mut Follow) -> FollowEvent {
    let followed = within("what is followed", follow.next()).await;
    followed.expect("following goes on")
}

async fn next_changes(follow: &mut Follow) -> WatchBatch {
    match next(follow).await {
        FollowEvent::Changes(batch) => batch,
        other => panic!("not changes: {other:?}"),
    }
}

/// The state that a consumer knows, with a check that it sees nothing twice.
#[derive(Default)]
struct Consumer {
    known: BTreeMap<String, Revision>,
    changes: usize,
}

impl Consumer {
    fn take(&mut self, followed: FollowEvent) {
        match followed {
            FollowEvent::Snapshot { items, .. } => {
                assert!(self.known.is_empty(), "the snapshot comes once");
                for item in items {
                    self.known.insert(item.key, item.modified);
                }
            }
            FollowEvent::Changes(batch) => {
                for change in batch.changes {
                    self.changes += 1;
                    self.change(change);
                }
            }
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Put(entry) => {
                let before = self.known.insert(entry.key.clone(), entry.modified);
                assert!(
                    before.is_none_or(|before| before < entry.modified),
                    "{} at {} came after {before:?}",
                    entry.key,
                    entry.modified
                );
            }
            Change::Delete { key } => {
                assert!(self.known.remove(&key).is_some(), "{key} was deleted twice");
            }
        }
    }
}

pub async fn following_gives_what_is_there_and_then_what_changes(store: SharedStore) {
    put(&store, "a/1", "x").await;
    put(&store, "b", "x").await;
    let revision = put(&store, "a/2", "y").await;
    let mut follow = Follow::new(store.clone(), "a/");
    let FollowEvent::Snapshot {
        items,
        revision: at,
    } = next(&mut follow).await
    else {
        panic!("the snapshot comes first");
    };
    assert_eq!(at, revision);
    let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["a/1", "a/2"]);
    delete(&store, "a/1").await;
    put(&store, "b", "other").await;
    let both = Transaction::new().put("a/3", "z").put("a/2", "z");
    let revision = commit(&store, both).await;
    assert_eq!(describe(&next_changes(&mut follow).await), "delete a/1");
    let batch = next_changes(&mut follow).await;
    assert_eq!(batch.revision, revision);
    assert_eq!(describe(&batch), "put a/3=z, put a/2=z");
}

pub async fn following_starts_with_nothing_and_goes_on(store: SharedStore) {
    let mut follow = Follow::new(store.clone(), "a/");
    let FollowEvent::Snapshot { items, .. } = next(&mut follow).await else {
        panic!("the snapshot comes first");
    };
    assert!(items.is_empty());
    put(&store, "a/1", "x").await;
    assert_eq!(describe(&next_changes(&mut follow).await), "put a/1=x");
}

pub async fn following_survives_compaction_without_loss_or_double(store: SharedStore) {
    let rounds = 25;
    put(&store, "n/first", "x").await;
    let mut follow = Follow::new(store.clone(), "n/");
    let mut consumer = Consumer::default();
    consumer.take(next(&mut follow).await);
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..rounds {
                write_round(&store, round).await;
                store
                    .compact(newest(&store).await)
                    .await
                    .expect("it is compacted");
            }
            put(&store, "n/last", "x").await;
        })
    };
    // The consumer is slow, so that history is sometimes compacted away under it.
    while !consumer.known.contains_key("n/last") {
        consumer.take(next(&mut follow).await);
        if consumer.changes.is_multiple_of(16) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    writer.await.expect("the writer ends");
    check_same(&store, &mut follow, &mut consumer).await;
}

async fn write_round(store: &SharedStore, round: usize) {
    for number in 0..12 {
        let key = format!("n/{}", (round * 5 + number) % 17);
        if number % 4 == 3 {
            delete(store, &key).await;
        } else {
            put(store, &key, format!("{round}/{number}")).await;
        }
        put(store, "elsewhere", "x").await;
    }
}

/// Follows until the consumer's state matches the store. The consumer has seen the last write, but
/// where a read took several pages, an earlier one may still arrive.
async fn check_same(store: &SharedStore, follow: &mut Follow, consumer: &mut Consumer) {
    let items = super::all(store, "n/").await;
    let expected: BTreeMap<String, Revision> = items
        .into_iter()
        .map(|item| (item.key, item.modified))
        .collect();
    while consumer.known != expected {
        consumer.take(next(follow).await);
    }
}

pub async fn following_a_range_of_many_pages_while_it_changes_loses_nothing(store: SharedStore) {
    const KEYS: usize = 3000;
    for chunk in 0..KEYS / 100 {
        let transaction = (0..100).fold(Transaction::new(), |transaction, number| {
            transaction.put(format!("n/{:05}", chunk * 100 + number), "x")
        });
        commit(&store, transaction).await;
    }
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0..300 {
                let key = format!("n/{:05}", (number * 997) % KEYS);
                match number % 3 {
                    0 => delete(&store, &key).await,
                    _ => put(&store, &key, number.to_string()).await,
                };
            }
            put(&store, "n/last", "x").await;
        })
    };
    for _ in 0..3 {
        let mut follow = Follow::new(store.clone(), "n/");
        let mut consumer = Consumer::default();
        while !consumer.known.contains_key("n/last") {
            consumer.take(next(&mut follow).await);
        }
        check_same(&store, &mut follow, &mut consumer).await;
    }
    writer.await.expect("the writer ends");
}
