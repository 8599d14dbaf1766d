//! Leader election: one server at a time does a task.
//!
//! Use it for work that any server could do and that only one needs to do. It is
//! not a lock: a leader that was presumed dead may still be running, so its work
//! must be correct even if two servers do it.

use std::time::Duration;

use bunraku_store::{
    Change, Compare, Follow, FollowEvent, LeaseId, SharedStore, StoreError, Transaction,
};

use crate::{ServiceError, keys};

/// Removes all leaders. For a store that no other process can have open: any
/// leader in it is dead. Waiting for their leases to end would only delay users.
pub async fn remove_all(store: &SharedStore) -> Result<(), ServiceError> {
    let transaction = Transaction::new()
        .delete_prefix(keys::LEADERS)
        .delete_prefix(keys::RUN_LEADERS);
    store.commit(transaction).await?;
    Ok(())
}

/// Leadership, until it is resigned or lost.
pub struct Leadership {
    store: SharedStore,
    lease: LeaseId,
    ttl: Duration,
}

impl Leadership {
    /// Waits until there is no other leader, and then becomes the leader.
    pub async fn campaign(
        store: SharedStore,
        key: &str,
        who: &str,
        ttl: Duration,
    ) -> Result<Self, ServiceError> {
        let mut follow = Follow::new(store.clone(), key);
        loop {
            let taken = match follow.next().await? {
                FollowEvent::Snapshot { items, .. } => items.iter().any(|item| item.key == key),
                FollowEvent::Changes(batch) => {
                    let last = batch.changes.into_iter().rfind(|change| match change {
                        Change::Put(entry) => entry.key == key,
                        Change::Delete { key: deleted } => deleted == key,
                    });
                    !matches!(last, Some(Change::Delete { .. }))
                }
            };
            if taken {
                continue;
            }
            if let Some(leadership) = Self::seize(store.clone(), key, who, ttl).await? {
                return Ok(leadership);
            }
            // Start a new follow: if nothing was committed, no change will ever come.
            follow = Follow::new(store.clone(), key);
        }
    }

    /// Becomes the leader if there is none now.
    pub async fn seize(
        store: SharedStore,
        key: &str,
        who: &str,
        ttl: Duration,
    ) -> Result<Option<Self>, ServiceError> {
        let lease = store.lease_grant(ttl).await?;
        let transaction = Transaction::new()
            .when(Compare::Absent(key.to_owned()))
            .put_with_lease(key, who.to_owned(), lease);
        let outcome = store.commit(transaction).await;
        let leadership = Self { store, lease, ttl };
        match outcome {
            Ok(outcome) if outcome.is_committed() => Ok(Some(leadership)),
            // If it was committed after all, revoking the lease frees the place.
            Ok(_) | Err(StoreError::OutcomeUnknown(_)) => {
                leadership.resign().await;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps the leadership; returns when it is lost.
    pub async fn keep_alive(&self) {
        let mut tick = tokio::time::interval(self.ttl / 3);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            match self.store.lease_keep_alive(self.lease).await {
                Ok(()) => {}
                Err(StoreError::LeaseNotFound(_)) => return,
                Err(error) => tracing::warn!(error = %error, "cannot stay the leader"),
            }
        }
    }

    /// Gives up the leadership.
    pub async fn resign(self) {
        if let Err(error) = self.store.lease_revoke(self.lease).await {
            tracing::debug!(error = %error, "cannot release a leader's lease; it expires");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bunraku_store::testing::{CutPoint, CutStore};
    use bunraku_store::{EmbeddedOptions, EmbeddedStore};

    use super::*;

    async fn becomes_leader(done: bool) {
        let directory = tempfile::tempdir().expect("a directory");
        let inner = EmbeddedStore::open(directory.path(), EmbeddedOptions::default()).await;
        let inner: SharedStore = Arc::new(inner.expect("a store"));
        // The outcome of three commits in a row is unknown.
        let mut store = Arc::clone(&inner);
        for _ in 0..3 {
            store = Arc::new(CutStore::at_commit(store, 0, CutPoint::Unsure { done }));
        }
        let ttl = Duration::from_secs(60);
        let campaign = Leadership::campaign(store, "leaders/test", "me", ttl);
        let leadership = tokio::time::timeout(Duration::from_secs(60), campaign).await;
        let leadership = leadership.expect("it does not wait for ever");
        assert!(leadership.is_ok(), "done: {done}");
        let leader = inner.get("leaders/test").await.expect("readable");
        assert_eq!(leader.expect("somebody leads").value, "me");
    }

    #[tokio::test]
    async fn the_lease_of_a_dead_server_with_an_exclusive_store_is_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = EmbeddedStore::open(directory.path(), EmbeddedOptions::default()).await;
        let store: SharedStore = Arc::new(store.expect("a store"));
        let ttl = Duration::from_secs(3_600);
        for who in ["the dead one", "the next one"] {
            remove_all(&store).await.expect("written");
            let campaign = Leadership::campaign(store.clone(), keys::RELEASE_LEADER, who, ttl);
            let leads = tokio::time::timeout(Duration::from_secs(60), campaign).await;
            assert!(leads.expect("at once").is_ok(), "{who}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_unsure_of_its_leadership_checks_again() {
        becomes_leader(false).await;
        becomes_leader(true).await;
    }
}
