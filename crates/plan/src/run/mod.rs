//! One orchestrated run over ordered nodes.
//!
//! [`Run::step`] is pure: no clock, no I/O, no randomness. Events come from outside and are
//! stored in a log. Only this module decides on their consequences, so that every reader of
//! the log arrives at the same state and the same actions.
//!
//! Invariant: an action is performed only after its event is in the log. An action may be
//! performed twice (after a takeover). The ids of node runs derive from the run and the step,
//! so agents recognize a repeated id.
//!
//! Absent: barriers between groups, unless requested. A node starts as soon as its
//! dependencies are done, and gates (`gate.rs`), batches and limits permit it.

mod action;
mod deadlines;
mod gate;
mod ready;
mod status;
mod step;
mod timeline;
mod timeline_svg;

use std::sync::Arc;

use bunraku_model::{NodeRunId, RunId};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

pub use action::Action;
pub use bunraku_wire::api::RunEnding;
pub use bunraku_wire::api::ordered_runs::{
    CheckResult, Event, HookTrigger, NewRun, NodeLimit, OnFailure, OrderedRunSubject, RolloutCheck,
    RunDetail, RunEnd, RunHooks, RunLog, RunLogEntry, RunLogReply, RunOptions, RunOutcome,
    RunRecord, RunStart, RunSummary, RunWait, StaleNode, StepCounts, UnavailableNode,
    UnavailableReason,
};
use bunraku_wire::api::ordered_runs::{RunPlan, StepIndex};
use deadlines::Deadlines;
use ready::ReadySteps;
pub use status::{RunPhase, StepState, StepStatus};
pub use timeline::{Bar, Timeline};
pub use timeline_svg::timeline_svg;

/// A run: a plan, its options, and its progress.
#[derive(Clone, Debug)]
pub struct Run {
    id: RunId,
    plan: Arc<RunPlan>,
    options: RunOptions,
    phase: RunPhase,
    statuses: Vec<StepStatus>,
    /// Number of unfinished dependencies of each step.
    missing: Vec<u32>,
    after: Vec<Vec<StepIndex>>,
    ready: ReadySteps,
    deadlines: Deadlines,
    active: usize,
    /// Number of requested starts, canaries included.
    started: usize,
    /// Number of steps that this run started itself and that succeeded.
    succeeded: usize,
    failures: usize,
    /// Number of steps whose node had drifted.
    drifted: usize,
    /// `true` once the canaries have succeeded and their gate is passed.
    canaries_done: bool,
    /// The gate at which the run waits.
    gate: Option<gate::Gate>,
    /// Number of gates opened so far.
    gates: u32,
    /// The batch that runs.
    batch: Option<usize>,
    /// `true` if a check or a limit stopped the run.
    stopped_by_rule: bool,
    /// The request for approval that the run waits for.
    approval: Option<(String, Timestamp)>,
    /// Number of unfinished steps in each group, from group 1.
    open: Vec<usize>,
    begun: Option<Timestamp>,
    ended: Option<Timestamp>,
    /// `true` if the run expired before it could begin.
    expired: bool,
    /// `true` if the run was refused when it was about to begin.
    refused: bool,
    /// The latest time seen. Clocks of servers differ.
    now: Timestamp,
}

impl Run {
    /// Creates a run that has not begun. The steps in `done` succeeded in an earlier run, and
    /// do not run again.
    pub fn new(id: RunId, plan: Arc<RunPlan>, options: RunOptions, done: &[StepIndex]) -> Self {
        let count = plan.steps.len();
        let mut after: Vec<Vec<StepIndex>> = vec![Vec::new(); count];
        let mut missing = vec![0u32; count];
        for (at, step) in (0..).zip(&plan.steps) {
            for wait in &step.waits_for {
                after[wait.step.at()].push(StepIndex(at));
                missing[at as usize] += 1;
            }
        }
        let mut open = vec![0usize; plan.groups.len()];
        for step in &plan.steps {
            open[step.group as usize - 1] += 1;
        }
        let mut run = Self {
            ready: ReadySteps::new(&plan, &after, &options),
            id,
            plan,
            options,
            phase: RunPhase::Queued,
            statuses: vec![StepStatus::default(); count],
            missing,
            after,
            deadlines: Deadlines::default(),
            active: 0,
            started: 0,
            succeeded: 0,
            failures: 0,
            drifted: 0,
            canaries_done: false,
            gate: None,
            gates: 0,
            batch: None,
            stopped_by_rule: false,
            approval: None,
            open,
            begun: None,
            ended: None,
            expired: false,
            refused: false,
            now: Timestamp::MIN,
        };
        for step in done.iter().filter(|step| step.at() < count) {
            run.succeeded_before(*step);
        }
        for step in (0..).map(StepIndex).take(count) {
            if run.missing[step.at()] == 0 && run.statuses[step.at()].is_waiting() {
                run.ready.insert(step);
            }
        }
        run
    }

    /// Returns the state after a log, and the actions that may not have been performed.
    pub fn recover(
        id: RunId,
        plan: Arc<RunPlan>,
        options: RunOptions,
        done: &[StepIndex],
        log: impl IntoIterator<Item = RunLogEntry>,
    ) -> (Self, Vec<Action>) {
        let mut run = Self::new(id, plan, options, done);
        for entry in log {
            run.step(&entry.event, entry.at);
        }
        let actions = run.outstanding();
        (run, actions)
    }

    /// Creates a run from its record and the entries of its log.
    pub fn of_record(
        record: &RunRecord,
        plan: Arc<RunPlan>,
        log: impl IntoIterator<Item = RunLogEntry>,
    ) -> (Self, Vec<Action>) {
        let options = record.options.clone();
        let mut run = Self::new(record.id, plan, options, &record.done);
        run.approval = (record.pending_approval()).map(|(id, until)| (id.to_owned(), until));
        for entry in log {
            run.step(&entry.event, entry.at);
        }
        let actions = run.outstanding();
        (run, actions)
    }

    /// Returns whether the run may begin as far as approval is concerned.
    pub fn is_approved(&self) -> bool {
        self.approval.is_none()
    }

    /// Returns the outcome, once the run has ended.
    pub fn end(&self) -> Option<RunEnd> {
        Some(RunEnd {
            outcome: self.outcome()?,
            begun: self.begun,
            ended: self.ended?,
            tally: self.tally(),
        })
    }

    /// Returns every action that was decided and is not known to have arrived.
    pub fn outstanding(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (step, status) in (0..).map(StepIndex).zip(&self.statuses) {
            if matches!(status.state, StepState::Starting) {
                actions.push(self.start_action(step));
            }
            if let Some(reason) = &status.cancel
                && status.late.is_none()
                && !status.ended_by_report
            {
                actions.push(self.cancel_action(step, reason));
            }
        }
        actions.extend(self.open_checks());
        actions
    }

    pub fn id(&self) -> RunId {
        self.id
    }

    pub fn plan(&self) -> &Arc<RunPlan> {
        &self.plan
    }

    pub fn options(&self) -> &RunOptions {
        &self.options
    }

    pub fn phase(&self) -> &RunPhase {
        &self.phase
    }

    pub fn statuses(&self) -> &[StepStatus] {
        &self.statuses
    }

    /// Returns the nodes that this run has started and that have ended.
    pub fn nodes_that_ran(&self) -> Vec<&bunraku_model::NodeName> {
        let steps = self.plan.steps.iter().zip(&self.statuses);
        let ran = steps.filter(|(_, status)| status.asked.is_some() && status.state.is_over());
        ran.map(|(step, _)| &step.node).collect()
    }

    pub fn begun(&self) -> Option<Timestamp> {
        self.begun
    }

    pub fn ended(&self) -> Option<Timestamp> {
        self.ended
    }

    pub fn outcome(&self) -> Option<RunOutcome> {
        match self.phase {
            RunPhase::Ended { outcome } => Some(outcome),
            _ => None,
        }
    }

    /// Returns the time at which [`Event::TimePassed`] is due, if nothing else happens.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        match self.phase {
            RunPhase::Ended { .. } => None,
            _ => self.deadlines.next(),
        }
    }

    /// Counts the steps in each state.
    pub fn tally(&self) -> StepCounts {
        status::count_states(&self.statuses)
    }

    /// Returns the id of a step's node run. Every caller computes the same id.
    pub fn node_run(&self, step: StepIndex) -> NodeRunId {
        let mut hash = Sha256::new();
        hash.update(self.id.0.as_bytes());
        hash.update(step.0.to_be_bytes());
        let digest = hash.finalize();
        let mut bytes = [0u8; 16];
        bytes.copy_from_slice(&digest[..16]);
        NodeRunId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    fn start_action(&self, step: StepIndex) -> Action {
        Action::Start {
            step,
            node_run: self.node_run(step),
        }
    }

    fn cancel_action(&self, step: StepIndex, reason: &str) -> Action {
        Action::Cancel {
            step,
            node_run: self.node_run(step),
            reason: reason.to_owned(),
        }
    }
}
