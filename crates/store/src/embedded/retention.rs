//! The retention of history.
//!
//! Ages are counted on the time since boot, while the store runs. The time of a revision is not on
//! disk, so nothing depends on a clock that can be set. After a restart all history counts as new;
//! its number of revisions stays bounded.

use std::collections::VecDeque;
use std::time::Duration;

const SHORTEST_PERIOD: Duration = Duration::from_millis(50);
const LONGEST_PERIOD: Duration = Duration::from_secs(60);

pub(super) struct Retention {
    keep_for: Duration,
    keep_revisions: u64,
    /// The newest revision at each sampled time.
    samples: VecDeque<(Duration, u64)>,
    next: Duration,
}

impl Retention {
    pub(super) fn new(keep_for: Duration, keep_revisions: u64) -> Self {
        Self {
            keep_for,
            // The newest revision must stay, because it is the record of the current revision.
            keep_revisions: keep_revisions.max(1),
            samples: VecDeque::new(),
            next: Duration::ZERO,
        }
    }

    /// Returns the time, since boot, of the next call to [`Retention::oldest`].
    pub(super) fn next(&self) -> Duration {
        self.next
    }

    /// Returns the oldest revision to keep.
    pub(super) fn oldest(&mut self, now: Duration, revision: u64) -> u64 {
        self.next = now + (self.keep_for / 60).clamp(SHORTEST_PERIOD, LONGEST_PERIOD);
        if self
            .samples
            .back()
            .is_none_or(|(_, last)| *last != revision)
        {
            self.samples.push_back((now, revision));
        }
        let mut by_age = 0;
        while let Some((at, up_to)) = self.samples.front()
            && *at + self.keep_for <= now
        {
            by_age = up_to + 1;
            self.samples.pop_front();
        }
        let by_number = (revision + 1).saturating_sub(self.keep_revisions);
        by_age.max(by_number).min(revision)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Retention;

    #[test]
    fn history_goes_by_age_and_by_number_and_the_newest_revision_stays() {
        let second = Duration::from_secs(1);
        let mut retention = Retention::new(second * 10, 100);
        assert_eq!(retention.oldest(second, 0), 0);
        assert_eq!(retention.oldest(second * 2, 5), 0);
        assert_eq!(retention.oldest(second * 3, 7), 0);
        assert_eq!(retention.oldest(second * 12, 9), 6, "5 is ten seconds old");
        assert_eq!(
            retention.oldest(second * 13, 300),
            201,
            "a hundred are kept"
        );
        assert_eq!(retention.oldest(second * 60, 300), 300, "the newest stays");
    }
}
