//! Tests of leases and the keys bound to them.
//!
//! A backend may round a lease's time up and may end it late, but never early.

use std::time::{Duration, Instant};

use super::{commit, describe, get, keys, newest, next_batch, put, text, watch, within};
use crate::{LeaseId, SharedStore, StoreError, Transaction, WatchStart};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(2);

async fn grant(store: &SharedStore, ttl: Duration) -> LeaseId {
    store.lease_grant(ttl).await.expect("the lease is granted")
}

fn is_unknown<T: std::fmt::Debug>(result: Result<T, StoreError>, lease: LeaseId) {
    assert!(
        matches!(result, Err(StoreError::LeaseNotFound(found)) if found == lease),
        "the lease is still there: {result:?}"
    );
}

pub async fn a_lease_can_be_granted_kept_alive_and_revoked(store: SharedStore) {
    let (lease, other) = (grant(&store, LONG).await, grant(&store, LONG).await);
    assert_ne!(lease, other);
    let bind = Transaction::new()
        .put_with_lease("b", "1", lease)
        .put_with_lease("a", "1", lease)
        .put_with_lease("c", "1", other);
    commit(&store, bind).await;
    store.lease_keep_alive(lease).await.expect("it is alive");
    let status = store.lease_status(lease).await.expect("the store answers");
    let status = status.expect("it is alive");
    assert!(status.granted >= LONG);
    assert!(status.remaining <= status.granted && status.remaining > LONG / 2);
    assert_eq!(status.keys, ["a", "b"]);
    assert_eq!(get(&store, "a").await.and_then(|a| a.lease), Some(lease));

    store.lease_revoke(lease).await.expect("it is alive");
    assert_eq!(keys(&store, "").await, ["c"]);
    assert_eq!(store.lease_status(lease).await.expect("an answer"), None);
    is_unknown(store.lease_keep_alive(lease).await, lease);
    is_unknown(store.lease_revoke(lease).await, lease);
}

pub async fn a_revoked_lease_takes_its_keys_in_one_revision(store: SharedStore) {
    let lease = grant(&store, LONG).await;
    let empty = grant(&store, LONG).await;
    let bind = Transaction::new()
        .put_with_lease("a", "1", lease)
        .put_with_lease("b", "1", lease)
        .put("c", "1");
    let bound = commit(&store, bind).await;
    let mut stream = watch(&store, "", WatchStart::Now).await;
    store.lease_revoke(empty).await.expect("it is alive");
    assert_eq!(newest(&store).await, bound, "no key, no revision");
    store.lease_revoke(lease).await.expect("it is alive");
    let batch = next_batch(&mut stream).await;
    assert_eq!(batch.revision.0, bound.0 + 1);
    let mut gone: Vec<String> = batch.changes.iter().map(super::describe_change).collect();
    gone.sort();
    assert_eq!(gone, ["delete a", "delete b"]);
    assert_eq!(newest(&store).await, batch.revision);
}

pub async fn an_expired_lease_takes_its_keys_and_watchers_see_it(store: SharedStore) {
    let mut stream = watch(&store, "", WatchStart::Now).await;
    let before = Instant::now();
    let lease = grant(&store, SHORT).await;
    let bound = commit(&store, Transaction::new().put_with_lease("a", "1", lease)).await;
    assert_eq!(describe(&next_batch(&mut stream).await), "put a=1");
    let batch = next_batch(&mut stream).await;
    assert!(before.elapsed() >= SHORT, "it ended before its time");
    assert_eq!(describe(&batch), "delete a");
    assert_eq!(batch.revision.0, bound.0 + 1);
    assert_eq!(get(&store, "a").await, None);
    is_unknown(store.lease_keep_alive(lease).await, lease);
    let late = Transaction::new().put_with_lease("a", "2", lease);
    is_unknown(store.commit(late).await, lease);
    assert_eq!(store.lease_status(lease).await.expect("an answer"), None);
}

pub async fn a_lease_that_is_kept_alive_does_not_end(store: SharedStore) {
    let ttl = Duration::from_secs(4);
    let (kept, left) = (grant(&store, ttl).await, grant(&store, ttl).await);
    let bind = Transaction::new()
        .put_with_lease("kept", "1", kept)
        .put_with_lease("left", "1", left);
    commit(&store, bind).await;
    let mut stream = watch(&store, "", WatchStart::Now).await;
    // Far more often than needed, so that a slow machine does not end it.
    let keep = async {
        loop {
            store.lease_keep_alive(kept).await.expect("it is alive");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let batch = tokio::select! {
        batch = next_batch(&mut stream) => batch,
        () = keep => unreachable!("it never ends"),
    };
    assert_eq!(describe(&batch), "delete left");
    assert_eq!(text(&store, "kept").await.as_deref(), Some("1"));
}

pub async fn a_key_belongs_to_the_lease_of_its_last_write(store: SharedStore) {
    let (first, second) = (grant(&store, LONG).await, grant(&store, LONG).await);
    let bind = Transaction::new()
        .put_with_lease("moved", "1", first)
        .put_with_lease("freed", "1", first)
        .put_with_lease("left", "1", first)
        .put_with_lease("gone", "1", first);
    commit(&store, bind).await;
    let rebind = Transaction::new()
        .put_with_lease("moved", "2", second)
        .put("freed", "2")
        .delete("gone");
    commit(&store, rebind).await;
    put(&store, "gone", "2").await;
    assert_eq!(
        get(&store, "freed").await.and_then(|found| found.lease),
        None
    );
    store.lease_revoke(first).await.expect("it is alive");
    assert_eq!(keys(&store, "").await, ["freed", "gone", "moved"]);
    store.lease_revoke(second).await.expect("it is alive");
    assert_eq!(keys(&store, "").await, ["freed", "gone"]);
}

pub async fn a_put_with_an_unknown_lease_is_refused(store: SharedStore) {
    let before = put(&store, "a", "1").await;
    let unknown = LeaseId(0x1234_5678);
    let transaction = Transaction::new()
        .put("b", "1")
        .put_with_lease("a", "2", unknown);
    is_unknown(store.commit(transaction).await, unknown);
    assert_eq!(newest(&store).await, before);
    assert_eq!(keys(&store, "").await, ["a"]);
    is_unknown(store.lease_keep_alive(unknown).await, unknown);
    is_unknown(store.lease_revoke(unknown).await, unknown);
    let status = within("a status", store.lease_status(unknown)).await;
    assert_eq!(status.expect("an answer"), None);
}
