//! Tests with many concurrent clients.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::{commit, get, newest, put, text};
use crate::{Compare, SharedStore, Transaction, TransactionOutcome, read_together};

const TASKS: usize = 32;

pub async fn of_many_who_create_a_key_one_wins(store: SharedStore) {
    for round in 0..10 {
        let key = format!("once/{round}");
        let tasks = (0..TASKS).map(|task| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                let transaction = Transaction::new()
                    .when(Compare::Absent(key.clone()))
                    .put(&key, format!("{task}"))
                    .read_on_failure(&key);
                store.commit(transaction).await.expect("the store answers")
            })
        });
        let outcomes = join_all(tasks).await;
        let winner = text(&store, &key).await.expect("someone won");
        let mut wins = Vec::new();
        for (task, outcome) in outcomes.into_iter().enumerate() {
            match outcome.expect("no task panics") {
                TransactionOutcome::Committed(_) => wins.push(task.to_string()),
                TransactionOutcome::Refused(read) => {
                    let seen = read[0].as_ref().expect("the winner's value is there");
                    assert_eq!(seen.value, winner);
                }
            }
        }
        assert_eq!(wins, [winner], "round {round}");
    }
}

pub async fn a_counter_counts_every_win_of_compare_and_swap(store: SharedStore) {
    const EACH: u64 = 10;
    put(&store, "counter", "0").await;
    let tasks = (0..TASKS).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut wins = 0;
            let mut read = get(&store, "counter").await;
            while wins < EACH {
                let now: u64 = read
                    .as_ref()
                    .and_then(|read| std::str::from_utf8(&read.value).ok()?.parse().ok())
                    .expect("the counter is a number");
                let transaction = Transaction::new()
                    .when_unchanged("counter", read.as_ref())
                    .put("counter", (now + 1).to_string())
                    .read_on_failure("counter");
                match store.commit(transaction).await.expect("the store answers") {
                    TransactionOutcome::Committed(_) => {
                        wins += 1;
                        read = get(&store, "counter").await;
                    }
                    TransactionOutcome::Refused(mut reads) => read = reads.remove(0),
                }
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("no task panics");
    }
    let counter = get(&store, "counter").await.expect("it is there");
    let expected = TASKS as u64 * EACH;
    assert_eq!(counter.value, expected.to_string());
    assert_eq!(counter.version, expected + 1);
}

pub async fn several_keys_are_read_at_one_revision(store: SharedStore) {
    const MOVES: usize = 50;
    put(&store, "left", "the ball").await;
    let mover = store.clone();
    let moves = tokio::spawn(async move {
        for number in 0..MOVES {
            let (from, to) = match number % 2 {
                0 => ("left", "right"),
                _ => ("right", "left"),
            };
            commit(&mover, Transaction::new().delete(from).put(to, "the ball")).await;
        }
    });
    while !moves.is_finished() {
        let [left, right, never] = read_together(&*store, ["left", "right", "never"])
            .await
            .expect("the store answers");
        assert_ne!(left.is_some(), right.is_some(), "the ball is in one place");
        assert_eq!(never, None);
    }
    moves.await.expect("the mover does not panic");
}

pub async fn many_writers_make_ordered_revisions(store: SharedStore) {
    const EACH: usize = 20;
    let start = newest(&store).await;
    let tasks = (0..TASKS).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut revisions = Vec::new();
            for round in 0..EACH {
                revisions.push(put(&store, &format!("w/{task}"), round.to_string()).await);
            }
            revisions
        })
    });
    let mut seen = BTreeSet::new();
    for task in join_all(tasks).await {
        let revisions = task.expect("no task panics");
        assert!(revisions.is_sorted());
        seen.extend(revisions.into_iter().map(|revision| revision.0));
    }
    let expected = (start.0 + 1)..=(start.0 + (TASKS * EACH) as u64);
    assert!(seen.into_iter().eq(expected), "each revision is given once");
}
