//! How well this member itself is doing, so that it does not blame others.
//!
//! A member that gets no CPU sees everybody else as silent: their answers
//! lie unread while its own timers run out. So a timer that fires late says
//! something about *this* member. Two things follow, as in Lifeguard:
//! the time it did not run is added to everything it waits for, and it grows
//! more patient for as long as it happens again.

use std::time::Duration;

/// Beyond this, more patience only delays.
const WORST: u32 = 8;

/// How this member does: 0 is well, [`WORST`] is as bad as it gets.
#[derive(Clone, Debug)]
pub struct LocalHealth {
    score: u32,
    tolerated: Duration,
    enabled: bool,
}

impl LocalHealth {
    /// A timer that is later than `tolerated` says that this member did not run.
    pub fn new(tolerated: Duration) -> Self {
        Self {
            score: 0,
            tolerated,
            enabled: true,
        }
    }

    /// Without the guard. Only to show what it is there for.
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

    /// The earliest timer fires this late. Gives back by how much everything
    /// that is waited for has to be moved, if at all.
    pub(super) fn observe(&mut self, late: Duration) -> Option<Duration> {
        if !self.enabled {
            return None;
        }
        if late <= self.tolerated {
            return None;
        }
        self.score = (self.score + 1).min(WORST);
        // What came meanwhile still has to be read: some more time for that.
        Some(late + self.tolerated * (1 + self.score))
    }

    /// A whole round in time.
    pub(super) fn recover(&mut self) {
        self.score = self.score.saturating_sub(1);
    }

    /// How long to wait for what usually takes `usual`.
    pub(super) fn stretch(&self, usual: Duration) -> Duration {
        usual * (1 + self.score)
    }
}
