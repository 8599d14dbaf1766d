//! The status of a run and of each of its steps.

use bunraku_wire::api::ordered_runs::{RunOutcome, StepCounts};
use bunraku_wire::api::{FailedResource, RunEnding};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The state of one step. Each way of not succeeding is a separate state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StepState {
    #[default]
    Waiting,
    /// The start was requested.
    Starting,
    Running,
    Succeeded,
    Failed,
    /// The node was asked, but did not start in time.
    NeverStarted,
    /// The node disconnected, and did not return in time.
    Lost,
    Disabled,
    TimedOut,
    Cancelled,
    Skipped {
        reason: String,
    },
}

impl StepState {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::NeverStarted => "never started",
            Self::Lost => "lost",
            Self::Disabled => "disabled",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
            Self::Skipped { .. } => "skipped",
        }
    }

    pub fn is_active(&self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }

    pub fn is_over(&self) -> bool {
        !matches!(self, Self::Waiting | Self::Starting | Self::Running)
    }
}

/// All known data about one step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StepStatus {
    #[serde(flatten)]
    pub state: StepState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<Timestamp>,
    /// The reason for its cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default)]
    pub changed: u64,
    #[serde(default)]
    pub failed: u64,
    /// The number of changes that undid someone else's.
    #[serde(default)]
    pub drifted: u64,
    /// The first resources that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailedResource>,
    /// A report that arrived after the step was given up. It changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<RunEnding>,
    /// `true` if it succeeded in an earlier run that this one resumes.
    #[serde(default)]
    pub before: bool,
    #[serde(skip)]
    pub(super) ended_by_report: bool,
}

impl StepStatus {
    /// Returns why the step did not succeed: the first failed resource with its message, or the
    /// message of the run, or both.
    pub fn failure_reason(&self) -> Option<String> {
        let first = self.failures.first().map(|first| {
            let resource = match &first.message {
                Some(message) => format!("{}: {}", first.resource, first_line(message)),
                None => first.resource.clone(),
            };
            match self.failed.saturating_sub(1) {
                0 => resource,
                1 => format!("{resource} (and 1 more resource failed)"),
                more => format!("{resource} (and {more} more resources failed)"),
            }
        });
        match (&self.message, first) {
            (Some(message), Some(first)) => Some(format!("{message}; {first}")),
            (message, first) => first.or_else(|| message.clone()),
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state == StepState::Waiting
    }
}

/// Returns the first line that says something.
fn first_line(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| !line.is_empty()).unwrap_or_default()
}

/// The phase of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum RunPhase {
    /// Other runs hold some of its nodes, or it has not begun yet.
    Queued,
    Running,
    /// Nothing new starts.
    Stopping {
        reason: String,
    },
    Cancelling {
        reason: String,
    },
    Ended {
        outcome: RunOutcome,
    },
}

/// Counts the steps in each state.
pub(super) fn count_states(statuses: &[StepStatus]) -> StepCounts {
    let mut tally = StepCounts::default();
    for status in statuses {
        *match status.state {
            StepState::Waiting => &mut tally.waiting,
            StepState::Starting => &mut tally.starting,
            StepState::Running => &mut tally.running,
            StepState::Succeeded => &mut tally.succeeded,
            StepState::Failed => &mut tally.failed,
            StepState::NeverStarted => &mut tally.never_started,
            StepState::Lost => &mut tally.lost,
            StepState::Disabled => &mut tally.disabled,
            StepState::TimedOut => &mut tally.timed_out,
            StepState::Cancelled => &mut tally.cancelled,
            StepState::Skipped { .. } => &mut tally.skipped,
        } += 1;
    }
    tally
}
