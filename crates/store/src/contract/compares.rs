//! Tests of each kind of compare, and of the answer to a refused transaction.

use super::{commit, get, newest, put, text};
use crate::{Compare, Revision, SharedStore, Transaction, TransactionOutcome};

async fn holds(store: &SharedStore, compare: Compare) -> bool {
    let transaction = Transaction::new().when(compare);
    let outcome = store.commit(transaction).await.expect("the store answers");
    outcome.is_committed()
}

pub async fn absent_holds_only_for_a_key_that_is_not_there(store: SharedStore) {
    put(&store, "a", "1").await;
    assert!(holds(&store, Compare::Absent("b".into())).await);
    assert!(!holds(&store, Compare::Absent("a".into())).await);
}

pub async fn exists_holds_only_for_a_key_that_is_there(store: SharedStore) {
    put(&store, "a", "1").await;
    assert!(holds(&store, Compare::Exists("a".into())).await);
    assert!(!holds(&store, Compare::Exists("b".into())).await);
}

pub async fn modified_holds_only_for_the_last_write(store: SharedStore) {
    let first = put(&store, "a", "1").await;
    assert!(holds(&store, Compare::Modified("a".into(), first)).await);
    let second = put(&store, "a", "1").await;
    assert!(!holds(&store, Compare::Modified("a".into(), first)).await);
    assert!(holds(&store, Compare::Modified("a".into(), second)).await);
    assert!(!holds(&store, Compare::Modified("b".into(), second)).await);
    // Revision 0 was never written. It stands for a missing key.
    assert!(holds(&store, Compare::Modified("b".into(), Revision(0))).await);
    assert!(!holds(&store, Compare::Modified("a".into(), Revision(0))).await);
}

pub async fn version_holds_only_for_that_number_of_writes(store: SharedStore) {
    put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    assert!(holds(&store, Compare::Version("a".into(), 2)).await);
    assert!(!holds(&store, Compare::Version("a".into(), 1)).await);
    assert!(!holds(&store, Compare::Version("a".into(), 3)).await);
    assert!(holds(&store, Compare::Version("b".into(), 0)).await);
    assert!(!holds(&store, Compare::Version("b".into(), 1)).await);
}

pub async fn value_holds_only_for_the_very_bytes(store: SharedStore) {
    put(&store, "a", "value").await;
    put(&store, "empty", "").await;
    assert!(holds(&store, Compare::Value("a".into(), "value".into())).await);
    assert!(!holds(&store, Compare::Value("a".into(), "valu".into())).await);
    assert!(!holds(&store, Compare::Value("a".into(), "".into())).await);
    assert!(holds(&store, Compare::Value("empty".into(), "".into())).await);
    assert!(!holds(&store, Compare::Value("nobody".into(), "".into())).await);
}

pub async fn one_compare_that_fails_stops_everything(store: SharedStore) {
    put(&store, "a", "1").await;
    let before = newest(&store).await;
    let transaction = Transaction::new()
        .when(Compare::Exists("a".into()))
        .when(Compare::Absent("b".into()))
        .when(Compare::Value("a".into(), "other".into()))
        .put("b", "1")
        .delete("a")
        .delete_prefix("a");
    let outcome = store.commit(transaction).await.expect("the store answers");
    assert_eq!(outcome, TransactionOutcome::Refused(vec![]));
    assert_eq!(text(&store, "a").await.as_deref(), Some("1"));
    assert_eq!(get(&store, "b").await, None);
    assert_eq!(newest(&store).await, before);
}

pub async fn a_refused_transaction_reads_what_it_was_asked_to(store: SharedStore) {
    put(&store, "a", "1").await;
    put(&store, "b", "2").await;
    let transaction = Transaction::new()
        .when(Compare::Absent("a".into()))
        .put("a", "3")
        .read_on_failure("b")
        .read_on_failure("nobody")
        .read_on_failure("a");
    let outcome = store.commit(transaction).await.expect("the store answers");
    let expected = vec![get(&store, "b").await, None, get(&store, "a").await];
    assert_eq!(outcome, TransactionOutcome::Refused(expected));
    let committed = Transaction::new().put("a", "3").read_on_failure("b");
    commit(&store, committed).await;
}

pub async fn a_transaction_built_on_what_was_read_fails_once_that_changed(store: SharedStore) {
    let create = |read: Option<&crate::KeyValue>| {
        Transaction::new()
            .when_unchanged("a", read)
            .put("a", "mine")
    };
    let absent = create(None);
    commit(&store, absent.clone()).await;
    let again = store.commit(absent).await.expect("the store answers");
    assert!(!again.is_committed());

    let read = get(&store, "a").await;
    put(&store, "a", "theirs").await;
    let stale = store.commit(create(read.as_ref())).await;
    assert!(!stale.expect("the store answers").is_committed());
    let read = get(&store, "a").await;
    commit(&store, create(read.as_ref())).await;
    assert_eq!(text(&store, "a").await.as_deref(), Some("mine"));
}
