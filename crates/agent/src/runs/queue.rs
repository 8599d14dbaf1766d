//! The order of runs on this node. Pure: time is an argument, and [`super::queue_file`] stores the
//! queue on disk.
//!
//! Only one run is active at a time. A request that may be folded is folded into a pending run that
//! does the same: one run then starts after the active one and carries all their causes. Other
//! requests wait in order. The queue is bounded.

use std::collections::VecDeque;

use bunraku_model::{Administration, NodeRunId, RunId};
use bunraku_wire::api::{Cause, QueueEntry, QueueReport, RunRequest};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::hold::StoredHold;

/// The number of causes that a run remembers individually.
const CAUSES_KEPT: usize = 50;
/// The number of folded requests that a run remembers by id.
const ALSO_KEPT: usize = 64;
/// The maximum number of pending runs.
const MOST_PENDING: usize = 100;
/// The number of ids that are remembered after their runs have ended: a command may be repeated.
const ACCEPTED_KEPT: usize = 1_000;
/// A run that was interrupted this often is not requested again.
const MOST_INTERRUPTIONS: u32 = 3;
/// The number of pending runs that are reported to servers, limited to keep the report small.
const TOLD_PENDING: usize = 20;
const TOLD_CAUSES: usize = 5;

/// A run that is pending or active.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct QueuedRun {
    pub(crate) request: RunRequest,
    /// Causes beyond those in the request.
    #[serde(default)]
    pub(crate) more_causes: u64,
    /// Further requests that the run serves.
    #[serde(default)]
    pub(crate) also: Vec<NodeRunId>,
    pub(crate) queued: Timestamp,
    /// The number of times that a run for the same causes was interrupted.
    #[serde(default)]
    pub(crate) interruptions: u32,
}

/// The active run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RunningRun {
    pub(crate) run: QueuedRun,
    pub(crate) started: Timestamp,
    /// The run's report has begun. Before that, a crash leaves the run pending.
    #[serde(default)]
    pub(crate) begun: bool,
}

/// The state that outlives the agent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Queue {
    #[serde(default)]
    pub(crate) running: Option<RunningRun>,
    #[serde(default)]
    pub(crate) pending: VecDeque<QueuedRun>,
    /// The ids of accepted requests, the newest last.
    #[serde(default)]
    accepted: VecDeque<NodeRunId>,
    /// The node's administration state, as a server last reported it.
    #[serde(default)]
    pub(crate) administration: Option<Administration>,
    /// The hold on this node, as a server last reported it.
    #[serde(default)]
    pub(crate) held: Option<StoredHold>,
}

/// The result of submitting a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SubmitOutcome {
    Queued {
        behind: usize,
    },
    Folded {
        into: NodeRunId,
    },
    /// The same request was submitted before.
    Known,
}

/// The reason why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SubmitRefusal {
    #[error("{0} runs are already waiting")]
    Full(usize),
    #[error("the node is disabled by {by}: {reason}")]
    Disabled { by: String, reason: String },
    #[error("cannot write the queue: {0}")]
    NotKept(String),
}

/// The place where a cancelled run was found.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum CancelOutcome {
    Pending(Box<QueuedRun>),
    Running,
    /// The run was folded into this one, which continues for the other requests.
    Folded {
        into: NodeRunId,
    },
    Nowhere,
}

impl Queue {
    /// Submits a request.
    pub(crate) fn submit(
        &mut self,
        request: RunRequest,
        now: Timestamp,
    ) -> Result<SubmitOutcome, SubmitRefusal> {
        if self.accepted.contains(&request.id) {
            return Ok(SubmitOutcome::Known);
        }
        if let Some(Administration::Disabled { by, reason, .. }) = &self.administration {
            return Err(SubmitRefusal::Disabled {
                by: by.clone(),
                reason: reason.clone(),
            });
        }
        let id = request.id;
        let same = (self.pending.iter())
            .position(|waiting| request.coalesce && waiting.does_the_same(&request));
        let submitted = match same {
            Some(index) => {
                let waiting = &mut self.pending[index];
                let into = waiting.request.id;
                waiting.fold(request);
                SubmitOutcome::Folded { into }
            }
            None if self.pending.len() >= MOST_PENDING => {
                return Err(SubmitRefusal::Full(self.pending.len()));
            }
            None => {
                let behind = self.pending.len() + usize::from(self.running.is_some());
                self.pending.push_back(QueuedRun::of(request, now));
                SubmitOutcome::Queued { behind }
            }
        };
        self.accept(id);
        Ok(submitted)
    }

    fn accept(&mut self, id: NodeRunId) {
        self.accepted.push_back(id);
        if self.accepted.len() > ACCEPTED_KEPT {
            self.accepted.pop_front();
        }
    }

    /// Makes the next run active and returns it. While an ordered run holds the node, only its own
    /// part can be next.
    pub(crate) fn start(&mut self, now: Timestamp, held_by: Option<RunId>) -> Option<QueuedRun> {
        if self.running.is_some() {
            return None;
        }
        let next = match held_by {
            None => 0,
            Some(run) => self.pending.iter().position(|waiting| waiting.is_of(run))?,
        };
        let run = self.pending.remove(next)?;
        self.running = Some(RunningRun {
            run: run.clone(),
            started: now,
            begun: false,
        });
        Some(run)
    }

    /// Records that the active run has a report.
    pub(crate) fn begin(&mut self) {
        if let Some(running) = &mut self.running {
            running.begun = true;
        }
    }

    /// Removes a run, wherever it is.
    pub(crate) fn take(&mut self, id: NodeRunId) -> Option<QueuedRun> {
        if let Some(running) = self.running.take_if(|running| running.run.request.id == id) {
            return Some(running.run);
        }
        let index = self.pending.iter().position(|run| run.request.id == id)?;
        self.pending.remove(index)
    }

    pub(crate) fn finish(&mut self) {
        self.running = None;
    }

    /// Removes the runs that waited too long and returns them.
    pub(crate) fn take_expired(&mut self, now: Timestamp) -> Vec<QueuedRun> {
        let (expired, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|run| run.is_expired(now));
        self.pending = pending;
        Vec::from(expired)
    }

    /// Returns the time at which the next run expires.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        (self.pending.iter())
            .filter_map(|run| run.request.start_before)
            .min()
    }

    /// Removes a run if it is pending.
    pub(crate) fn cancel(&mut self, id: NodeRunId) -> CancelOutcome {
        if let Some(index) = self.pending.iter().position(|run| run.request.id == id) {
            let run = self.pending.remove(index).expect("it was just found");
            return CancelOutcome::Pending(Box::new(run));
        }
        if (self.running.as_ref()).is_some_and(|running| running.run.request.id == id) {
            return CancelOutcome::Running;
        }
        let folded = self.pending.iter_mut().find(|run| run.also.contains(&id));
        match folded {
            Some(run) => {
                run.also.retain(|also| *also != id);
                CancelOutcome::Folded {
                    into: run.request.id,
                }
            }
            None => CancelOutcome::Nowhere,
        }
    }

    /// Requests an interrupted run again, unless a run or an operator ordered it: they wait for
    /// its report, and decide.
    pub(crate) fn ask_again(
        &mut self,
        interrupted: QueuedRun,
        id: NodeRunId,
        now: Timestamp,
    ) -> bool {
        let ordered = |cause: &Cause| matches!(cause, Cause::Run { .. } | Cause::Operator { .. });
        if interrupted.request.causes.iter().any(ordered)
            || interrupted.interruptions + 1 >= MOST_INTERRUPTIONS
        {
            return false;
        }
        let interruptions = interrupted.interruptions + 1;
        let request = RunRequest {
            id,
            coalesce: true,
            ..interrupted.request
        };
        let taken = self.submit(request, now);
        let into = match taken {
            Ok(SubmitOutcome::Queued { .. }) => id,
            Ok(SubmitOutcome::Folded { into }) => into,
            Ok(SubmitOutcome::Known) | Err(_) => return false,
        };
        if let Some(run) = self.pending.iter_mut().find(|run| run.request.id == into) {
            run.interruptions = run.interruptions.max(interruptions);
            run.more_causes += interrupted.more_causes;
        }
        true
    }

    /// Returns the report of the queue for servers.
    pub(crate) fn report(&self) -> QueueReport {
        QueueReport {
            running: (self.running.as_ref())
                .map(|running| running.run.entry(Some(running.started))),
            pending: (self.pending.iter().take(TOLD_PENDING))
                .map(|run| run.entry(None))
                .collect(),
            more_pending: self.pending.len().saturating_sub(TOLD_PENDING) as u64,
            held_by: None,
        }
    }
}

impl QueuedRun {
    pub(crate) fn of(mut request: RunRequest, now: Timestamp) -> Self {
        let causes = std::mem::take(&mut request.causes);
        let mut run = Self {
            request,
            more_causes: 0,
            also: Vec::new(),
            queued: now,
            interruptions: 0,
        };
        run.add_causes(causes);
        run
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        (self.request.start_before).is_some_and(|limit| limit <= now)
    }

    /// Returns whether it is a part of this ordered run.
    fn is_of(&self, run: RunId) -> bool {
        self.request.causes.contains(&Cause::Run { run })
    }

    fn does_the_same(&self, other: &RunRequest) -> bool {
        let own = &self.request;
        own.coalesce
            && own.subject == other.subject
            && own.mode == other.mode
            && own.tags == other.tags
    }

    /// Folds another request into this run. The run then has the later start limit and the longer
    /// time limit of both.
    fn fold(&mut self, other: RunRequest) {
        let own = &mut self.request;
        own.start_before = later(own.start_before, other.start_before);
        own.timeout_seconds = later(own.timeout_seconds, other.timeout_seconds);
        if self.also.len() < ALSO_KEPT {
            self.also.push(other.id);
        }
        self.add_causes(other.causes);
    }

    fn add_causes(&mut self, causes: Vec<Cause>) {
        for cause in causes {
            if self.request.causes.contains(&cause) {
                continue;
            }
            if let Cause::Trigger(trigger) = &cause {
                self.more_causes += trigger.more;
            }
            if self.request.causes.len() < CAUSES_KEPT {
                self.request.causes.push(cause);
            } else {
                self.more_causes += 1;
            }
        }
    }

    fn entry(&self, started: Option<Timestamp>) -> QueueEntry {
        let causes = &self.request.causes;
        QueueEntry {
            run: self.request.id,
            subject: self.request.subject.clone(),
            mode: self.request.mode,
            causes: causes.iter().take(TOLD_CAUSES).cloned().collect(),
            more_causes: self.more_causes + causes.len().saturating_sub(TOLD_CAUSES) as u64,
            queued: self.queued,
            started,
        }
    }
}

/// Returns the later of two limits. `None` is the latest.
fn later<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    Some(one?.max(other?))
}

#[cfg(test)]
mod tests;
