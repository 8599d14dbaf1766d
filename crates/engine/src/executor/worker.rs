//! The workers: take, act, finish.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread::{Builder, Scope};

use super::Run;
use super::gate::GateDecision;
use super::schedule::{Schedule, WorkItem};
use crate::event::RunEnd;
use crate::{Event, Reason, ResourceOutcome, ResourceResult, Status};

/// A finished step that is not reported yet.
pub(super) struct FinishedStep {
    node: u32,
    upstream_pending: bool,
    outcome: ResourceOutcome,
}

/// The results that a worker returns when it requests more work.
#[derive(Default)]
struct WorkerResult {
    done: Vec<FinishedStep>,
    /// Steps that the worker took and did not begin.
    rest: Vec<(u32, GateDecision)>,
}

impl Run<'_> {
    /// Works until nothing is left. This thread is the first worker. Each worker starts
    /// another one as long as there is work for it, up to the limit. If all steps are
    /// quick, more threads would only wait for each other.
    pub(super) fn work(&self) {
        std::thread::scope(|scope| self.worker(scope));
        self.report_never_run();
    }

    fn worker<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut returned = WorkerResult::default();
        loop {
            match self.next(&mut returned, scope) {
                WorkItem::Steps(steps) => self.steps(steps, &mut returned),
                WorkItem::Group(members) => self.group(members),
                WorkItem::Wait | WorkItem::Over => return,
            }
        }
    }

    /// Returns finished steps and waits for more, under one lock. A worker that takes
    /// steps wakes one other worker if there is more, so that a long chain does not
    /// wake all of them at each link.
    fn next<'scope>(
        &'scope self,
        returned: &mut WorkerResult,
        scope: &'scope Scope<'scope, '_>,
    ) -> WorkItem {
        let mut board = self.board();
        for done in returned.done.drain(..) {
            self.settle(&mut board, done);
        }
        board.give_back(returned.rest.drain(..).map(|(node, _)| node));
        loop {
            match board.take(self.context.cancellation.is_cancelled()) {
                WorkItem::Wait => {
                    board.idle += 1;
                    board =
                        (self.more.wait(board)).unwrap_or_else(std::sync::PoisonError::into_inner);
                    board.idle -= 1;
                }
                WorkItem::Over => {
                    self.more.notify_all();
                    return WorkItem::Over;
                }
                work => {
                    let another = board.wants_another(self.cores);
                    if another && board.idle > 0 {
                        self.more.notify_one();
                    } else if another && board.workers < self.workers {
                        board.workers += 1;
                        drop(board);
                        self.start_another(scope);
                    }
                    return work;
                }
            }
        }
    }

    /// Starts another worker. A machine without free threads continues with the existing ones.
    fn start_another<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let another = Builder::new().spawn_scoped(scope, || self.worker(scope));
        if another.is_err() {
            self.board().workers -= 1;
        }
    }

    /// Runs steps one after the other. A step that found something to do ends the
    /// round: its dependents should not wait, and other workers may take the rest.
    fn steps(&self, steps: Vec<(u32, GateDecision)>, returned: &mut WorkerResult) {
        let mut steps = steps.into_iter();
        for (node, gate) in steps.by_ref() {
            let done = self.one(node, gate);
            let calm = done.outcome.status == Status::Unchanged;
            returned.done.push(done);
            if !calm || self.context.cancellation.is_cancelled() {
                break;
            }
        }
        returned.rest.extend(steps);
    }

    fn one(&self, node: u32, gate: GateDecision) -> FinishedStep {
        let done = |upstream_pending, outcome| FinishedStep {
            node,
            upstream_pending,
            outcome,
        };
        let gate = match gate {
            GateDecision::Look => match guarded(|| self.gate_of_prober(node)) {
                Some(gate) => gate,
                None => return done(false, panicked()),
            },
            gate => gate,
        };
        match gate {
            GateDecision::Look => unreachable!("the looks have been taken"),
            GateDecision::Skip(reasons) => done(false, self.held_back(node, reasons)),
            GateDecision::Run {
                refreshed_by,
                upstream_pending,
            } => {
                self.started(node);
                let outcome = guarded(|| self.step(node, refreshed_by, upstream_pending));
                done(upstream_pending, outcome.unwrap_or_else(panicked))
            }
        }
    }

    pub(super) fn started(&self, node: u32) {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        self.context.sink.emit(Event::Started {
            number,
            reference: &self.plan.steps[node as usize].reference,
        });
    }

    /// Reports the outcome of a step and unblocks its dependents.
    pub(super) fn finish(&self, node: u32, upstream_pending: bool, outcome: ResourceOutcome) {
        let done = FinishedStep {
            node,
            upstream_pending,
            outcome,
        };
        self.settle(&mut self.board(), done);
    }

    /// Like [`Run::finish`], for callers that hold the board.
    fn settle(&self, board: &mut Schedule<'_>, done: FinishedStep) {
        let FinishedStep { node, outcome, .. } = done;
        let step = &self.plan.steps[node as usize];
        let failed = outcome.status == Status::Failed;
        // A state that something else prevented from running counts as failed too.
        let ends = failed || step.state.is_some() && outcome.result() == Some(false);
        if step.secret_outputs {
            // Before any event about it, or about the steps that read it.
            let printed = outcome.outputs.iter().filter(|(name, _)| *name != "rc");
            printed.for_each(|(_, output)| self.context.secrets.add(output));
        }
        if let (Some(name), false) = (
            &step.control.register,
            failed || outcome.status == Status::Skipped,
        ) {
            board
                .outputs
                .insert(name.clone(), self.registered(&outcome));
        }
        let finished = self.finished(board.next_number(), node, outcome);
        // Emitted under the lock, so that events come in the order of their numbers.
        self.context.sink.emit(Event::Finished(&finished));
        board.finish(node, done.upstream_pending, finished);
        if ends && (self.failhard || step.control.failhard) && board.ended.is_none() {
            board.ended = Some(RunEnd::FailHard((*step.reference).clone()));
        }
    }

    pub(super) fn finished(
        &self,
        number: usize,
        node: u32,
        outcome: ResourceOutcome,
    ) -> ResourceResult {
        let step = &self.plan.steps[node as usize];
        ResourceResult {
            number,
            reference: std::sync::Arc::clone(&step.reference),
            place: std::sync::Arc::clone(&step.place),
            state: self.shown_state(step),
            outcome: self.without_secrets(step, outcome),
        }
    }

    fn report_never_run(&self) {
        let mut board = self.board();
        let Some(end) = board.ended.clone() else {
            return;
        };
        for node in board.never_run() {
            let outcome = ResourceOutcome::skipped(Reason::RunEnded(end.clone()));
            let finished = self.finished(board.next_number(), node, outcome);
            self.context.sink.emit(Event::Finished(&finished));
            board.push(finished);
        }
    }
}

/// Catches a panic. A provider with a bug fails its resource, not the run: otherwise
/// the others would wait forever for a worker that is gone.
pub(super) fn guarded<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

pub(super) fn panicked() -> ResourceOutcome {
    let error = crate::StepError::new("the provider crashed; this is a bug");
    super::step::failure(Vec::new(), &error)
}
