//! The deadlines of a run.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use bunraku_wire::api::ordered_runs::StepIndex;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Deadline {
    Start(StepIndex),
    Work(StepIndex),
    Return(StepIndex),
    Confirm(StepIndex),
    Soak(u32),
    Check(u32),
    Whole,
}

/// All deadlines. Those that no longer matter are ignored when they are due.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Timestamp, Deadline)>);

impl Deadlines {
    pub(super) fn set(&mut self, from: Timestamp, seconds: u64, deadline: Deadline) {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let at = from
            .checked_add(SignedDuration::from_secs(seconds))
            .unwrap_or(Timestamp::MAX);
        self.0.insert((at, deadline));
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Removes and returns the next deadline that is due.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, Deadline)> {
        let due = self.0.first().is_some_and(|(at, _)| *at <= now);
        if due { self.0.pop_first() } else { None }
    }
}
