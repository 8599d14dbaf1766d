//! The outcome of a run.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    Succeeded,
    Failed,
    /// An operator stopped it, and nothing failed.
    Cancelled,
    /// It could not begin in time.
    Expired,
    /// It could not begin at all: a node was not ready, or the plan was no longer valid. Nothing
    /// ran.
    Refused,
}

impl RunOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Refused => "refused",
        }
    }
}

/// The number of steps by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StepCounts {
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

impl StepCounts {
    pub fn all(&self) -> usize {
        self.waiting + self.starting + self.running + self.finished()
    }

    pub fn finished(&self) -> usize {
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
