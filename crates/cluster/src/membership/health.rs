//! The health of this member itself, so that it does not blame others.
//!
//! A member that gets no CPU sees everyone else as silent: their answers are unread
//! while its own timers expire. So a late timer says something about *this* member.
//! Two things follow, as in Lifeguard. The time in which it did not run is added to
//! every deadline. It also becomes more patient for as long as this happens again.

use std::time::Duration;

/// Beyond this, more patience only adds delay.
const WORST: u32 = 8;

/// The health score of this member: 0 is healthy, [`WORST`] is the worst.
#[derive(Clone, Debug)]
pub struct LocalHealth {
    score: u32,
    tolerated: Duration,
    enabled: bool,
}

impl LocalHealth {
    /// Creates the tracker. A timer later than `tolerated` means that this member did not run.
    pub fn new(tolerated: Duration) -> Self {
        Self {
            score: 0,
            tolerated,
            enabled: true,
        }
    }

    /// Creates a tracker that does nothing. Only for tests that show why the guard is needed.
    pub fn disabled() -> Self {
        Self {
            score: 0,
            tolerated: Duration::MAX,
            enabled: false,
        }
    }

    pub fn score(&self) -> u32 {
        self.score
    }

    /// Records that the earliest timer fires this late. Returns by how much all
    /// deadlines have to move, if at all.
    pub(super) fn observe(&mut self, late: Duration) -> Option<Duration> {
        if !self.enabled {
            return None;
        }
        if late <= self.tolerated {
            return None;
        }
        self.score = (self.score + 1).min(WORST);
        // Messages that arrived meanwhile still have to be read: add some time for that.
        Some(late + self.tolerated * (1 + self.score))
    }

    /// Records a whole round without delay.
    pub(super) fn recover(&mut self) {
        self.score = self.score.saturating_sub(1);
    }

    /// Returns how long to wait for something that usually takes `usual`.
    pub(super) fn stretch(&self, usual: Duration) -> Duration {
        usual * (1 + self.score)
    }
}
