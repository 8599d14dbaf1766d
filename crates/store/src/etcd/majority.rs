//! The availability of a majority of the members, as far as this client knows.
//!
//! The majority counts as lost when a request that needs it was tried everywhere for long enough
//! without success. Then [`super::Inner::lose_majority`] keeps trying.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Majority {
    lost: Mutex<Option<Instant>>,
}

impl Majority {
    fn lost(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since the majority was lost; `None` while there is one.
    pub(super) fn lost_for(&self) -> Option<Duration> {
        self.lost().map(|since| since.elapsed())
    }

    /// Records that attempts since then have failed. Returns whether this is a new loss.
    pub(super) fn mark_lost(&self, since: Instant) -> bool {
        let mut lost = self.lost();
        let news = lost.is_none();
        lost.get_or_insert(since);
        news
    }

    pub(super) fn mark_regained(&self) {
        *self.lost() = None;
    }
}
