//! The events of a run while it happens, and its summary at the end.
//!
//! None of them contains secrets: the executor hides secrets before it emits events.

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::catalog::{Place, ResourceReference, StateOrigin};
use serde_json::{Map, Value};

use crate::Change;

/// A receiver of events. Worker threads call it, one event at a time for each resource.
/// It must not block for long.
pub trait EventSink: Sync {
    fn emit(&self, event: Event<'_>);
}

/// A sink that drops all events.
impl EventSink for () {
    fn emit(&self, _event: Event<'_>) {}
}

/// One event of a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// The plan is checked and the run begins.
    Begun { resources: usize, noop: bool },
    /// A resource started.
    Started {
        number: usize,
        reference: &'a ResourceReference,
    },
    /// A command printed a line.
    Output {
        reference: &'a ResourceReference,
        stream: Stream,
        line: &'a str,
    },
    /// A resource failed and is retried.
    Retrying(FailedAttempt<'a>),
    /// A resource finished, with any outcome.
    Finished(&'a ResourceResult),
}

/// A failed attempt that is repeated.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    pub reference: &'a ResourceReference,
    /// The number of the failed attempt.
    pub attempt: u32,
    /// The time until the next attempt.
    pub wait: Duration,
    pub why: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// The result of one resource.
#[derive(Clone, Debug)]
pub struct ResourceResult {
    /// The position in the order in which resources finished, from 1.
    pub number: usize,
    pub reference: Arc<ResourceReference>,
    pub place: Arc<Place>,
    pub state: Option<Box<StateOrigin>>,
    pub outcome: ResourceOutcome,
}

/// The outcome of a resource.
#[derive(Clone, Debug)]
pub struct ResourceOutcome {
    pub status: Status,
    /// The reasons why the resource was skipped or refreshed.
    pub reasons: Vec<Reason>,
    /// The changes made, or pending in a noop run. For a failed resource, the changes to make.
    pub changes: Vec<Change>,
    /// Changes were made despite the failure: a command ran, and then failed.
    pub changes_made: bool,
    /// The machine had drifted from the state that the last run left.
    pub corrective: bool,
    /// The resource was refreshed (or would be, in noop).
    pub refreshed: bool,
    pub message: Option<String>,
    pub outputs: Map<String, Value>,
    /// Some of the outputs are secrets, and are hidden here.
    pub secret_outputs: bool,
    pub attempts: u32,
    pub duration: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    Unchanged,
    Changed,
    /// Noop: the resource would change.
    Pending,
    Failed,
    Skipped,
}

/// The reason why a resource did not run, or why it was refreshed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A direct or indirect dependency failed.
    DependencyFailed(ResourceReference),
    /// A prerequisite (`prereq`) failed.
    PrerequisiteFailed(ResourceReference),
    /// `onchanges`: no target changed. `onfail`: no target failed. `prereq`: no target would
    /// change.
    NotAskedFor { requisite: &'static str },
    /// `onlyif`, `unless` or `creates` prevented it.
    Guard(String),
    /// The run ended before the resource's turn.
    RunEnded(RunEnd),
    /// A change of this resource refreshed it.
    RefreshedBy(ResourceReference),
}

/// The reason why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunEnd {
    Interrupted,
    FailHard(ResourceReference),
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Pending => "pending",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DependencyFailed(reference) => write!(f, "{reference} failed"),
            Self::PrerequisiteFailed(reference) => write!(f, "its prerequisite {reference} failed"),
            Self::NotAskedFor {
                requisite: "onfail",
            } => f.write_str("onfail: nothing failed"),
            Self::NotAskedFor {
                requisite: "prereq",
            } => f.write_str("prereq: nothing would change"),
            Self::NotAskedFor { requisite } => write!(f, "{requisite}: nothing changed"),
            Self::Guard(text) => f.write_str(text),
            Self::RunEnded(RunEnd::Interrupted) => f.write_str("the run was interrupted"),
            Self::RunEnded(RunEnd::FailHard(reference)) => {
                write!(f, "{reference} failed and stopped the run")
            }
            Self::RefreshedBy(reference) => write!(f, "refreshed by {reference}"),
        }
    }
}

impl ResourceOutcome {
    pub(crate) fn new(status: Status) -> Self {
        Self {
            status,
            reasons: Vec::new(),
            changes: Vec::new(),
            changes_made: false,
            corrective: false,
            refreshed: false,
            message: None,
            outputs: Map::new(),
            secret_outputs: false,
            attempts: 0,
            duration: Duration::ZERO,
        }
    }

    pub(crate) fn skipped(reason: Reason) -> Self {
        Self::skipped_for(vec![reason])
    }

    pub(crate) fn skipped_for(reasons: Vec<Reason>) -> Self {
        Self {
            reasons,
            ..Self::new(Status::Skipped)
        }
    }

    /// Returns true if the resource failed, or did not run because another one failed.
    pub fn is_failure(&self) -> bool {
        self.status == Status::Failed
            || self.status == Status::Skipped
                && self.reasons.iter().any(|reason| {
                    matches!(
                        reason,
                        Reason::DependencyFailed(_) | Reason::PrerequisiteFailed(_)
                    )
                })
    }

    /// Returns true if the resource's watchers are refreshed.
    pub fn is_change(&self) -> bool {
        matches!(self.status, Status::Changed | Status::Pending) || self.refreshed
    }

    /// Returns true if Salt would list changes for the resource.
    pub fn made_changes(&self) -> bool {
        match self.status {
            Status::Failed => self.changes_made && !self.changes.is_empty(),
            _ => self.is_change() && !self.changes.is_empty(),
        }
    }

    /// Returns Salt's result: true, false, or null for "would change" and for "never
    /// ran because its prerequisite failed".
    pub fn result(&self) -> Option<bool> {
        let never_came_up =
            |reason: &Reason| matches!(reason, Reason::PrerequisiteFailed(_) | Reason::RunEnded(_));
        match self.status {
            Status::Unchanged | Status::Changed => Some(true),
            Status::Failed => Some(false),
            Status::Pending => None,
            Status::Skipped if self.reasons.iter().any(never_came_up) => None,
            Status::Skipped => Some(!self.is_failure()),
        }
    }

    /// Returns true if requisites prevented it from running, so that it was not even observed.
    pub fn kept_from_running(&self) -> bool {
        self.reasons.iter().any(|reason| {
            matches!(
                reason,
                Reason::NotAskedFor { .. } | Reason::DependencyFailed(_) | Reason::RunEnded(_)
            )
        })
    }

    /// Returns true if the resource was observed.
    pub fn ran(&self) -> bool {
        self.status != Status::Skipped
    }
}

/// The summary of a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Every resource, in the order in which they finished.
    pub finished: Vec<ResourceResult>,
    pub ended_early: Option<RunEnd>,
    pub noop: bool,
    pub duration: Duration,
}

impl Summary {
    pub fn count(&self, status: Status) -> usize {
        self.finished
            .iter()
            .filter(|one| one.outcome.status == status)
            .count()
    }

    /// Returns true if everything is as declared (or, in noop, could be).
    pub fn succeeded(&self) -> bool {
        self.ended_early.is_none() && !self.finished.iter().any(|one| one.outcome.is_failure())
    }

    /// Returns true if something changed or would change.
    pub fn changed(&self) -> bool {
        self.finished.iter().any(|one| one.outcome.is_change())
    }
}
