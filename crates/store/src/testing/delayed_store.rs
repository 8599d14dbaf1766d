//! A store with delays: every answer takes a while, and every watch lags.
//!
//! It invents nothing, and nothing fails. It exposes code that assumes that a watch has shown a
//! change when its commit was answered, or that two calls return in the order in which they were
//! made.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use super::{Call, CallWork, Overlay};
use crate::{SharedStore, StoreError, WatchStart, WatchStream};

/// Returns the delay of the next call.
pub type Delay = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Passes everything on, with a delay each time.
pub struct DelayedStore {
    inner: SharedStore,
    delay: Delay,
}

impl DelayedStore {
    pub fn new(inner: SharedStore, delay: Delay) -> Self {
        Self { inner, delay }
    }
}

impl Overlay for DelayedStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send>(&self, _call: Call, work: impl CallWork<T>) -> Result<T, StoreError> {
        pause((self.delay)()).await;
        let outcome = work.await;
        pause((self.delay)()).await;
        outcome
    }

    async fn do_watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        let changes = self.inner.watch(prefix, start).await?;
        let delay = Arc::clone(&self.delay);
        // One after the other, because a watch promises order.
        Ok(Box::pin(changes.then(move |batch| {
            let late = pause(delay());
            async move {
                late.await;
                batch
            }
        })))
    }
}

/// Waits. Nothing waits for no time, which would take a tick of the timer.
async fn pause(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryStore;
    use crate::{Store, Transaction};

    #[tokio::test(start_paused = true)]
    async fn a_watch_lags_behind_the_answer_and_keeps_the_order() {
        let long = Duration::from_secs(10);
        let inner: SharedStore = Arc::new(MemoryStore::new());
        let store = DelayedStore::new(inner.clone(), Arc::new(move || long));
        let mut watch = store.watch("", WatchStart::Now).await.expect("watches");
        for key in ["a", "b"] {
            let put = Transaction::new().put(key, "x");
            inner.commit(put).await.expect("written");
        }
        let early = tokio::time::timeout(long / 2, watch.next()).await;
        assert!(early.is_err(), "it is late");
        let mut seen = Vec::new();
        for _ in 0..2 {
            let batch = watch.next().await.expect("a batch").expect("no error");
            seen.push(batch.revision);
        }
        assert!(seen.is_sorted() && seen.len() == 2, "{seen:?}");
    }
}
