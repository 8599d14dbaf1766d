//! How a run ended.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    Succeeded,
    Failed,
    /// A person stopped it, and nothing failed.
    Cancelled,
    /// Its time passed before it could begin.
    Expired,
}

/// How many steps are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    pub waiting: usize,
    pub starting: usize,
    pub running: usize,
    pub succeeded: usize,
    pub failed: usize,
    pub never_started: usize,
    pub lost: usize,
    pub disabled: usize,
    pub timed_out: usize,
    pub cancelled: usize,
    pub skipped: usize,
}

impl Tally {
    pub fn all(&self) -> usize {
        self.waiting + self.starting + self.running + self.over()
    }

    pub fn over(&self) -> usize {
        self.succeeded
            + self.failed
            + self.never_started
            + self.lost
            + self.disabled
            + self.timed_out
            + self.cancelled
            + self.skipped
    }
}
