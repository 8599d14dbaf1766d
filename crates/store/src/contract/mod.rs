//! The contract of all backends: one suite, run on each.
//!
//! A backend's test file names a function that creates a new, empty store without other users:
//!
//! ```ignore
//! async fn make_store() -> bunraku_store::contract::Subject { … }
//! bunraku_store::contract_suite!(make_store);
//! ```
//!
//! Each case becomes a test. Nothing here depends on the backend: no case relies on the number of
//! the first revision, on the exact end of a lease (except that it is not early), or on the history
//! that compaction leaves beyond the trait's guarantees.

mod compares;
mod contention;
mod following;
pub mod history;
mod keys;
mod leases;
mod model;
mod ranges;
mod refusals;
mod watches;

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use crate::{
    Change, KeyValue, Revision, SharedStore, StoreError, Transaction, TransactionOutcome,
    WatchBatch, WatchStream,
};

pub use compares::*;
pub use contention::*;
pub use following::*;
pub use keys::*;
pub use leases::*;
pub use model::*;
pub use ranges::*;
pub use refusals::*;
pub use watches::*;

/// A store to test, and a value that must live as long as the store.
pub struct Subject {
    pub store: SharedStore,
    pub keep: Box<dyn Any + Send>,
}

/// Far longer than any operation takes: a test that waits this long would wait for ever.
const DEADLINE: Duration = Duration::from_secs(60);

/// Creates one test per case, with `$make` as the source of stores.
#[macro_export]
macro_rules! contract_suite {
    ($make:path) => {
        $crate::contract_suite!(@cases $make:
            a_key_that_was_never_written_is_absent
            a_put_is_read_back_with_its_place_in_history
            a_second_put_raises_the_version_and_keeps_the_creation
            a_key_that_is_deleted_and_written_again_starts_anew
            every_transaction_that_changes_something_makes_exactly_one_revision
            a_transaction_that_changes_nothing_makes_no_revision
            all_operations_of_a_transaction_share_a_revision
            deleting_a_prefix_deletes_what_starts_with_it_and_nothing_else
            deleting_the_empty_prefix_deletes_everything
            a_value_may_be_empty_or_any_bytes
            a_range_gives_the_keys_under_a_prefix_in_order
            pages_join_to_the_whole_range_without_gap_or_overlap
            a_page_after_a_key_that_is_gone_goes_on_behind_it
            a_range_of_keys_only_leaves_the_values_out
            a_prefix_ends_where_its_last_character_ends
            a_large_range_comes_in_pages
            absent_holds_only_for_a_key_that_is_not_there
            exists_holds_only_for_a_key_that_is_there
            modified_holds_only_for_the_last_write
            version_holds_only_for_that_number_of_writes
            value_holds_only_for_the_very_bytes
            one_compare_that_fails_stops_everything
            a_refused_transaction_reads_what_it_was_asked_to
            a_transaction_built_on_what_was_read_fails_once_that_changed
            an_invalid_key_is_refused_everywhere
            what_is_too_large_is_refused_and_nothing_is_done
            a_key_written_twice_in_one_transaction_is_refused
            the_largest_value_and_the_longest_transaction_are_taken
            a_lease_can_be_granted_kept_alive_and_revoked
            a_revoked_lease_takes_its_keys_in_one_revision
            an_expired_lease_takes_its_keys_and_watchers_see_it
            a_lease_that_is_kept_alive_does_not_end
            a_key_belongs_to_the_lease_of_its_last_write
            a_put_with_an_unknown_lease_is_refused
            a_lease_of_no_time_is_refused
            of_many_who_create_a_key_one_wins
            a_counter_counts_every_win_of_compare_and_swap
            several_keys_are_read_at_one_revision
            many_writers_make_ordered_revisions
            a_watch_from_now_sees_what_comes_after_it
            a_watch_at_a_revision_starts_with_that_revision
            a_watch_at_a_future_revision_waits_for_it
            a_watch_goes_from_history_to_live_without_gap_or_double
            a_watch_gives_the_changes_of_a_revision_together_and_in_order
            a_watch_sees_only_its_prefix
            watchers_of_many_prefixes_each_see_their_own
            a_watcher_that_was_away_for_long_misses_nothing
            a_watch_of_compacted_history_is_refused
            compaction_keeps_the_newest_values
            compaction_of_the_future_is_refused_and_of_the_past_is_nothing
            following_gives_what_is_there_and_then_what_changes
            following_starts_with_nothing_and_goes_on
            following_survives_compaction_without_loss_or_double
            following_a_range_of_many_pages_while_it_changes_loses_nothing
            random_operations_do_what_the_model_does
        );
    };
    (@cases $make:path: $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let subject = $make().await;
                $crate::contract::$case(subject.store.clone()).await;
                drop(subject);
            }
        )*
    };
}

/// Commits a transaction that must succeed, and returns its revision.
async fn commit(store: &SharedStore, transaction: Transaction) -> Revision {
    match store.commit(transaction).await {
        Ok(TransactionOutcome::Committed(revision)) => revision,
        other => panic!("not committed: {other:?}"),
    }
}

async fn put(store: &SharedStore, key: &str, value: impl Into<Bytes>) -> Revision {
    commit(store, Transaction::new().put(key, value)).await
}

async fn delete(store: &SharedStore, key: &str) -> Revision {
    commit(store, Transaction::new().delete(key)).await
}

async fn get(store: &SharedStore, key: &str) -> Option<KeyValue> {
    store.get(key).await.expect("the store answers")
}

/// Returns the value of a key as text, or `None`.
async fn text(store: &SharedStore, key: &str) -> Option<String> {
    let found = get(store, key).await?;
    Some(String::from_utf8_lossy(&found.value).into_owned())
}

/// Returns every entry under a prefix, across all pages.
async fn all(store: &SharedStore, prefix: &str) -> Vec<KeyValue> {
    let mut items: Vec<KeyValue> = Vec::new();
    loop {
        let page = store
            .range(crate::Range {
                after: items.last().map(|last| last.key.clone()),
                ..crate::Range::prefix(prefix)
            })
            .await
            .expect("the store answers");
        items.extend(page.items);
        if !page.more {
            return items;
        }
    }
}

/// Returns every key under a prefix.
async fn keys(store: &SharedStore, prefix: &str) -> Vec<String> {
    let items = all(store, prefix).await;
    items.into_iter().map(|item| item.key).collect()
}

/// Returns the store's newest revision.
async fn newest(store: &SharedStore) -> Revision {
    let page = store.range(crate::Range::prefix("none/such")).await;
    page.expect("the store answers").revision
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, work).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

async fn watch(store: &SharedStore, prefix: &str, start: crate::WatchStart) -> WatchStream {
    store
        .watch(prefix, start)
        .await
        .expect("the watch is accepted")
}

async fn next_batch(stream: &mut WatchStream) -> WatchBatch {
    match within("a batch", stream.next()).await {
        Some(Ok(batch)) => batch,
        other => panic!("the watch ended: {other:?}"),
    }
}

/// Formats a batch as one line: `put a=1, delete b`.
fn describe(batch: &WatchBatch) -> String {
    let changes = batch.changes.iter().map(describe_change);
    changes.collect::<Vec<_>>().join(", ")
}

fn describe_change(change: &Change) -> String {
    match change {
        Change::Put(entry) => {
            format!(
                "put {}={}",
                entry.key,
                String::from_utf8_lossy(&entry.value)
            )
        }
        Change::Delete { key } => format!("delete {key}"),
    }
}

fn is_invalid<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(
        matches!(result, Err(StoreError::Invalid(_))),
        "not refused as invalid: {result:?}"
    );
}

fn is_too_large<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(
        matches!(result, Err(StoreError::TooLarge { .. })),
        "not refused as too large: {result:?}"
    );
}
