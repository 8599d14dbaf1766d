//! Tests of single keys, deletes and the numbering of revisions.

use super::{commit, delete, get, keys, newest, put, text};
use crate::{SharedStore, Transaction};

pub async fn a_key_that_was_never_written_is_absent(store: SharedStore) {
    assert_eq!(get(&store, "nobody").await, None);
}

pub async fn a_put_is_read_back_with_its_place_in_history(store: SharedStore) {
    let revision = put(&store, "nodes/web-1", "up").await;
    let found = get(&store, "nodes/web-1").await.expect("it is there");
    assert_eq!(found.key, "nodes/web-1");
    assert_eq!(found.value, "up");
    assert_eq!(found.created, revision);
    assert_eq!(found.modified, revision);
    assert_eq!(found.version, 1);
    assert_eq!(found.lease, None);
}

pub async fn a_second_put_raises_the_version_and_keeps_the_creation(store: SharedStore) {
    let first = put(&store, "a", "1").await;
    let second = put(&store, "a", "2").await;
    let found = get(&store, "a").await.expect("it is there");
    assert_eq!(found.value, "2");
    assert_eq!((found.created, found.modified), (first, second));
    assert_eq!(found.version, 2);
}

pub async fn a_key_that_is_deleted_and_written_again_starts_anew(store: SharedStore) {
    put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    delete(&store, "a").await;
    assert_eq!(get(&store, "a").await, None);
    let again = put(&store, "a", "3").await;
    let found = get(&store, "a").await.expect("it is there");
    assert_eq!((found.created, found.modified), (again, again));
    assert_eq!(found.version, 1);
}

pub async fn every_transaction_that_changes_something_makes_exactly_one_revision(
    store: SharedStore,
) {
    let mut last = newest(&store).await;
    for round in 0..5 {
        let transaction = Transaction::new()
            .put("a", format!("{round}"))
            .put("b", format!("{round}"))
            .delete("c");
        let revision = commit(&store, transaction).await;
        assert_eq!(revision.0, last.0 + 1);
        assert_eq!(newest(&store).await, revision);
        last = revision;
        let revision = put(&store, "c", "c").await;
        assert_eq!(revision.0, last.0 + 1);
        last = revision;
    }
    // Writing the same value again is also a change.
    assert_eq!(put(&store, "c", "c").await.0, last.0 + 1);
}

pub async fn a_transaction_that_changes_nothing_makes_no_revision(store: SharedStore) {
    let before = put(&store, "a", "1").await;
    assert_eq!(delete(&store, "nobody").await, before);
    let nothing = Transaction::new().delete_prefix("none/");
    assert_eq!(commit(&store, nothing).await, before);
    assert_eq!(commit(&store, Transaction::new()).await, before);
    assert_eq!(newest(&store).await, before);
    assert_eq!(put(&store, "a", "2").await.0, before.0 + 1);
}

pub async fn all_operations_of_a_transaction_share_a_revision(store: SharedStore) {
    put(&store, "old", "x").await;
    put(&store, "dir/1", "x").await;
    let transaction = Transaction::new()
        .put("new", "y")
        .delete("old")
        .delete_prefix("dir/")
        .put("other", "z");
    let revision = commit(&store, transaction).await;
    assert_eq!(keys(&store, "").await, ["new", "other"]);
    for key in ["new", "other"] {
        let found = get(&store, key).await.expect("it is there");
        assert_eq!(found.modified, revision, "{key}");
    }
}

pub async fn deleting_a_prefix_deletes_what_starts_with_it_and_nothing_else(store: SharedStore) {
    for key in ["a", "a/", "a/1", "a/1/2", "a0", "ab", "b", "B", "ä"] {
        put(&store, key, "x").await;
    }
    commit(&store, Transaction::new().delete_prefix("a/")).await;
    assert_eq!(keys(&store, "").await, ["B", "a", "a0", "ab", "b", "ä"]);
    // Overlapping deletes do not conflict.
    let twice = Transaction::new().delete("ab").delete_prefix("a");
    commit(&store, twice).await;
    assert_eq!(keys(&store, "").await, ["B", "b", "ä"]);
}

pub async fn deleting_the_empty_prefix_deletes_everything(store: SharedStore) {
    for key in ["a", "z/z", "ÿ", "\u{10ffff}"] {
        put(&store, key, "x").await;
    }
    commit(&store, Transaction::new().delete_prefix("")).await;
    assert_eq!(keys(&store, "").await, Vec::<String>::new());
}

pub async fn a_value_may_be_empty_or_any_bytes(store: SharedStore) {
    put(&store, "empty", "").await;
    let bytes: Vec<u8> = (0..=255).collect();
    put(&store, "bytes", bytes.clone()).await;
    assert_eq!(text(&store, "empty").await.as_deref(), Some(""));
    let found = get(&store, "bytes").await.expect("it is there");
    assert_eq!(found.value, bytes);
}
