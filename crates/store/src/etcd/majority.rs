//! Whether a majority of the members answers, as far as this client knows.
//!
//! It is lost when something that only a majority can do was tried for long
//! enough, everywhere, in vain. Somebody has to keep trying then: that is
//! [`super::Inner::lose_majority`].

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

    /// For how long there has been none; nothing when there is one.
    pub(super) fn lost_for(&self) -> Option<Duration> {
        self.lost().map(|since| since.elapsed())
    }

    /// It was tried since then, in vain. Whether that is news.
    pub(super) fn lose(&self, since: Instant) -> bool {
        let mut lost = self.lost();
        let news = lost.is_none();
        lost.get_or_insert(since);
        news
    }

    pub(super) fn regain(&self) {
        *self.lost() = None;
    }
}
