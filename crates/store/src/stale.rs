//! Reads without a majority.
//!
//! Code that makes decisions reads the newest data or nothing. Code that only displays data may say
//! so with [`allow`]: then, while no majority of the datastores answers, reads are served from one
//! datastore's data, and the caller learns about it.
//!
//! The permission belongs to the task, not to the store: the same services answer callers that may
//! see old data and callers that must not, and background work never gets it by accident. Tasks
//! that a task spawns (`tokio::spawn`) do not inherit it.
//!
//! Absent: old data for writes. A transaction is refused without a majority.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

tokio::task_local! {
    static PERMISSION: Permission;
}

/// No majority of the datastores answers. This is the source of [`crate::StoreError::Unavailable`]
/// where the cause is known.
#[derive(Debug, thiserror::Error)]
#[error("the datastores have had no majority for {} s", .lasting.as_secs())]
pub struct NoMajority {
    pub lasting: Duration,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// A task's permission to read one datastore's data, and a record of its use.
#[derive(Clone, Debug, Default)]
pub struct Permission(Arc<Mutex<Option<Duration>>>);

impl Permission {
    /// Returns how long no majority had answered when old data was returned; `None` if all reads
    /// returned the newest data.
    pub fn used(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, lasting: Duration) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *used = Some(used.map_or(lasting, |known| known.max(lasting)));
    }
}

/// Lets `work` read without a majority while there is none.
pub async fn allow<F: Future>(permission: Permission, work: F) -> F::Output {
    PERMISSION.scope(permission, work).await
}

/// Like [`allow`], for a stream whose items are read later, such as a body.
pub struct AllowedStream<S> {
    permission: Permission,
    stream: S,
}

impl<S> AllowedStream<S> {
    pub fn new(permission: Permission, stream: S) -> Self {
        Self { permission, stream }
    }
}

impl<S: futures::Stream + Unpin> futures::Stream for AllowedStream<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let Self { permission, stream } = self.get_mut();
        PERMISSION.sync_scope(permission.clone(), || Pin::new(stream).poll_next(context))
    }
}

/// Returns whether the current task may read without a majority.
pub(crate) fn is_allowed() -> bool {
    PERMISSION.try_with(|_| ()).is_ok()
}

/// Records that the current task got old data.
pub(crate) fn was_used(lasting: Duration) {
    let _ = PERMISSION.try_with(|permission| permission.note(lasting));
}
