//! Reading without a majority.
//!
//! Whoever decides anything reads what is newest, or nothing. Whoever only
//! shows something may say so with [`allow`]: then, while no majority of the
//! datastores answers, reads are served from what one datastore has, and the
//! caller learns that they were.
//!
//! The permission belongs to the task, not to the store: the same services
//! answer those who may see old data and those who must not, and what runs in
//! the background never gets it by accident. What a task starts anew
//! (`tokio::spawn`) does not inherit it.
//!
//! Absent: old data for writes. A transaction is refused without a majority.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

tokio::task_local! {
    static PERMISSION: Permission;
}

/// No majority of the datastores answers. The source of
/// [`crate::StoreError::Unavailable`] where that is known.
#[derive(Debug, thiserror::Error)]
#[error("no majority of the datastores has answered for {} s", .lasting.as_secs())]
pub struct NoMajority {
    pub lasting: Duration,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// That a task may be given what one datastore has, and whether it was.
#[derive(Clone, Debug, Default)]
pub struct Permission(Arc<Mutex<Option<Duration>>>);

impl Permission {
    /// For how long no majority had answered when old data was given; nothing
    /// when all that was read was the newest.
    pub fn used(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, lasting: Duration) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *used = Some(used.map_or(lasting, |known| known.max(lasting)));
    }
}

/// Lets `work` read without a majority, while there is none.
pub async fn allow<F: Future>(permission: Permission, work: F) -> F::Output {
    PERMISSION.scope(permission, work).await
}

/// The same for a stream whose items are read later, such as a body.
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

/// Whether the task that runs now may.
pub(crate) fn is_allowed() -> bool {
    PERMISSION.try_with(|_| ()).is_ok()
}

/// The task that runs now was given old data.
pub(crate) fn was_used(lasting: Duration) {
    let _ = PERMISSION.try_with(|permission| permission.note(lasting));
}
