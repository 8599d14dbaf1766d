//! What a run tells while it happens, and what it says at the end.
//!
//! All of it is free of secrets: the executor hides them before it tells.

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::catalog::{Place, ResourceReference, StateOrigin};
use serde_json::{Map, Value};

use crate::Change;

/// Hears what happens. Called from the worker threads, one event at a time
/// for each resource; it must not block for long.
pub trait EventSink: Sync {
    fn tell(&self, event: Event<'_>);
}

/// Tells nobody.
impl EventSink for () {
    fn tell(&self, _event: Event<'_>) {}
}

/// One thing that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The plan is checked and work begins.
    Begun { resources: usize, noop: bool },
    /// A resource is at work.
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
    /// A resource failed and is tried again.
    Retrying {
        reference: &'a ResourceReference,
        attempt: u32,
        wait: Duration,
        why: &'a str,
    },
    /// A resource is done with, whatever came of it.
    Finished(&'a Finished),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// The end of one resource.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The place in the order in which resources were done with, from 1.
    pub number: usize,
    pub reference: Arc<ResourceReference>,
    pub place: Arc<Place>,
    pub state: Option<Box<StateOrigin>>,
    pub outcome: Outcome,
}

/// What came of a resource.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub status: Status,
    /// Why it was skipped, or why it was refreshed.
    pub reasons: Vec<Reason>,
    /// Made, or in a noop run pending; of a failed resource: what was to be made.
    pub changes: Vec<Change>,
    /// Changes were made although it failed: a command ran, and then failed.
    pub changes_made: bool,
    /// The machine had drifted from what the last run left.
    pub corrective: bool,
    /// A refresh was carried out (or would be).
    pub refreshed: bool,
    pub message: Option<String>,
    pub outputs: Map<String, Value>,
    /// Some of the outputs are secrets, and hidden in here.
    pub secret_outputs: bool,
    pub attempts: u32,
    pub duration: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    Unchanged,
    Changed,
    /// Noop: it would change.
    Pending,
    Failed,
    Skipped,
}

/// Why a resource did not run, or why it was refreshed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Something it depends on failed, here or further up.
    DependencyFailed(ResourceReference),
    /// Something that had to run before it (`prereq`) failed.
    PrerequisiteFailed(ResourceReference),
    /// `onchanges`: no target changed. `onfail`: no target failed. `prereq`: no target would change.
    NotAskedFor { requisite: &'static str },
    /// `onlyif`, `unless` or `creates` said so.
    Guard(String),
    /// The run ended before its turn.
    RunEnded(RunEnd),
    /// A change there refreshed it.
    RefreshedBy(ResourceReference),
}

/// Why a run ended early.
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
                write!(f, "{reference} failed and ends the run")
            }
            Self::RefreshedBy(reference) => write!(f, "refreshed by {reference}"),
        }
    }
}

impl Outcome {
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
        Self {
            reasons: vec![reason],
            ..Self::new(Status::Skipped)
        }
    }

    /// Whether it failed, or could not run because something else did.
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

    /// Whether those that watch it are refreshed.
    pub fn is_change(&self) -> bool {
        matches!(self.status, Status::Changed | Status::Pending) || self.refreshed
    }

    /// Whether there is something that Salt would list as changes.
    pub fn made_changes(&self) -> bool {
        match self.status {
            Status::Failed => self.changes_made && !self.changes.is_empty(),
            _ => self.is_change() && !self.changes.is_empty(),
        }
    }

    /// Salt's word: true, false, or null for "would change" and for "never ran
    /// because its prerequisite failed".
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

    /// Whether requisites kept it from running, so that it was not even looked at.
    pub fn kept_from_running(&self) -> bool {
        self.reasons.iter().any(|reason| {
            matches!(
                reason,
                Reason::NotAskedFor { .. } | Reason::DependencyFailed(_) | Reason::RunEnded(_)
            )
        })
    }

    /// Whether the resource was looked at.
    pub fn ran(&self) -> bool {
        self.status != Status::Skipped
    }
}

/// The end of a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Every resource in the order in which it was done with.
    pub finished: Vec<Finished>,
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

    /// Whether everything is as it should be (or, in noop, could be).
    pub fn succeeded(&self) -> bool {
        self.ended_early.is_none() && !self.finished.iter().any(|one| one.outcome.is_failure())
    }

    /// Whether something changed or would change.
    pub fn changed(&self) -> bool {
        self.finished.iter().any(|one| one.outcome.is_change())
    }
}
