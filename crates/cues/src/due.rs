//! Background work driven by keys: each entry in its turn, or everything that is due.
//!
//! Both functions run forever; the caller stops them by dropping them. If the
//! store is unavailable, they retry a little later, and skip nothing in the
//! meantime.

use std::time::Duration;

use bunraku_store::{Follow, SharedStore, WatchStart};
use futures::StreamExt;

use bunraku_control::ServiceError;

/// The delay before a retry after the store was unavailable.
const RETRY: Duration = Duration::from_millis(500);

/// Calls `work` for the key of every existing and new entry, one after the other,
/// each until it succeeds.
pub async fn each_entry<W: Future<Output = Result<(), ServiceError>>>(
    store: &SharedStore,
    prefix: &str,
    work: impl Fn(String) -> W,
) {
    let mut follow = Follow::new(store.clone(), prefix);
    loop {
        let entries = match follow.next().await {
            Ok(followed) => followed.into_puts(),
            Err(error) => {
                tracing::warn!(%prefix, error = %error, "cannot process entries; retrying");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        for entry in entries {
            while let Err(error) = work(entry.key.clone()).await {
                tracing::warn!(key = %entry.key, error = %error, "cannot process an entry; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Calls `work` whenever something changes, or when the delay that it last returned has passed.
pub async fn when_due<W: Future<Output = Result<Duration, ServiceError>>>(
    store: &SharedStore,
    prefix: &str,
    work: impl Fn() -> W,
) {
    loop {
        // First, so that a change during `work` causes another call.
        let watch = store.watch(prefix, WatchStart::Now).await;
        let sleep = match work().await {
            Ok(sleep) => sleep,
            Err(error) => {
                tracing::warn!(%prefix, error = %error, "cannot process due entries; retrying");
                RETRY
            }
        };
        match watch {
            Ok(mut changes) => {
                // On a change, at the end of the watch, or when the time is up: call again.
                let _ = tokio::time::timeout(sleep, changes.next()).await;
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bunraku_store::Transaction;
    use bunraku_store::testing::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn what_changes_while_somebody_looks_is_looked_at_again() {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let looked = AtomicUsize::new(0);
        let work = || async {
            if looked.fetch_add(1, Ordering::SeqCst) == 0 {
                // `work` has just run, and a new entry arrives.
                let new = Transaction::new().put("due/a", "new");
                store.commit(new).await.expect("written");
            }
            Ok(Duration::from_secs(3_600))
        };
        let twice = async {
            while looked.load(Ordering::SeqCst) < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let looking = async {
            tokio::select! {
                () = when_due(&store, "due/", work) => {}
                () = twice => {}
            }
        };
        let patience = Duration::from_secs(60);
        let done = tokio::time::timeout(patience, looking).await;
        done.expect("it does not sleep for an hour");
    }
}
