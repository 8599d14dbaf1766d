//! Tests of requests that a store rejects.

use std::time::Duration;

use super::{commit, get, is_invalid, is_too_large, keys, newest, put};
use crate::limits::{MAX_KEY_BYTES, MAX_OPERATIONS, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES};
use crate::{Compare, Range, SharedStore, Transaction, WatchStart};

pub async fn an_invalid_key_is_refused_everywhere(store: SharedStore) {
    for key in ["", "/", "/nodes", "a\0b", "\0"] {
        is_invalid(store.get(key).await);
        is_invalid(store.commit(Transaction::new().put(key, "x")).await);
        is_invalid(store.commit(Transaction::new().delete(key)).await);
        let compare = Transaction::new().when(Compare::Exists(key.into()));
        is_invalid(store.commit(compare).await);
        let read = Transaction::new().read_on_failure(key);
        is_invalid(store.commit(read).await);
        if key.is_empty() {
            continue;
        }
        is_invalid(store.range(Range::prefix(key)).await);
        is_invalid(store.commit(Transaction::new().delete_prefix(key)).await);
        is_invalid(store.watch(key, WatchStart::Now).await.map(drop));
    }
    assert_eq!(keys(&store, "").await, Vec::<String>::new());
}

pub async fn what_is_too_large_is_refused_and_nothing_is_done(store: SharedStore) {
    let before = put(&store, "a", "1").await;
    let long = "k".repeat(MAX_KEY_BYTES + 1);
    is_too_large(store.get(&long).await);
    is_too_large(store.commit(Transaction::new().put(&long, "x")).await);
    let large = vec![0; MAX_VALUE_BYTES + 1];
    is_too_large(store.commit(Transaction::new().put("b", large)).await);

    let many = |count: usize| {
        (0..count).fold(Transaction::new(), |transaction, number| {
            transaction.put(format!("many/{number}"), "x")
        })
    };
    is_too_large(store.commit(many(MAX_OPERATIONS + 1)).await);
    let compares = (0..=MAX_OPERATIONS).fold(Transaction::new(), |transaction, number| {
        transaction.when(Compare::Absent(format!("none/{number}")))
    });
    is_too_large(store.commit(compares).await);
    let heavy = (0..4).fold(Transaction::new(), |transaction, number| {
        transaction.put(
            format!("heavy/{number}"),
            vec![0; MAX_TRANSACTION_BYTES / 3],
        )
    });
    is_too_large(store.commit(heavy).await);
    assert_eq!(newest(&store).await, before);
    assert_eq!(keys(&store, "").await, ["a"]);
}

pub async fn a_key_written_twice_in_one_transaction_is_refused(store: SharedStore) {
    put(&store, "a", "1").await;
    let before = newest(&store).await;
    for transaction in [
        Transaction::new().put("a", "2").put("a", "3"),
        Transaction::new().put("a", "2").delete("a"),
        Transaction::new().delete("a").put("a", "2"),
        Transaction::new().delete_prefix("a").put("a/b", "2"),
        Transaction::new().put("a/b", "2").delete_prefix(""),
    ] {
        is_invalid(store.commit(transaction).await);
    }
    assert_eq!(newest(&store).await, before);
}

pub async fn the_largest_value_and_the_longest_transaction_are_taken(store: SharedStore) {
    let key = "k".repeat(MAX_KEY_BYTES);
    let value: Vec<u8> = (0..MAX_VALUE_BYTES)
        .map(|place| (place % 251) as u8)
        .collect();
    put(&store, &key, value.clone()).await;
    let found = get(&store, &key).await.expect("it is there");
    assert!(found.value == value, "the value came back otherwise");

    let longest = (0..MAX_OPERATIONS).fold(Transaction::new(), |transaction, number| {
        transaction
            .when(Compare::Absent(format!("n/{number}")))
            .put(format!("n/{number}"), "x")
            .read_on_failure(format!("n/{number}"))
    });
    commit(&store, longest).await;
    assert_eq!(keys(&store, "n/").await.len(), MAX_OPERATIONS);
}

pub async fn a_lease_of_no_time_is_refused(store: SharedStore) {
    is_invalid(store.lease_grant(Duration::ZERO).await);
}
