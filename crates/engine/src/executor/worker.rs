//! The workers: take, act, finish.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use super::Run;
use super::board::Work;
use super::gate::Gate;
use crate::event::RunEnd;
use crate::{Event, Finished, Outcome, Reason, Status};

impl Run<'_> {
    /// Works until nothing is left. One worker needs no thread.
    pub(super) fn work(&self, workers: usize) {
        if workers <= 1 {
            self.worker();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..workers {
                    scope.spawn(|| self.worker());
                }
            });
        }
        self.report_never_run();
    }

    fn worker(&self) {
        loop {
            match self.next() {
                Work::One(node, gate) => self.one(node, gate),
                Work::Group(members) => self.group(members),
                Work::Wait | Work::Over => {
                    self.more.notify_all();
                    return;
                }
            }
        }
    }

    /// Waits for work. Who takes some wakes one other if there is more, so
    /// that a long chain does not wake everybody at each link.
    fn next(&self) -> Work {
        let mut board = self.board();
        loop {
            match board.take(self.context.cancellation.is_cancelled()) {
                Work::Wait => {
                    board =
                        (self.more.wait(board)).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                work => {
                    if board.has_work() {
                        self.more.notify_one();
                    }
                    return work;
                }
            }
        }
    }

    fn one(&self, node: u32, gate: Gate) {
        let gate = match gate {
            Gate::Look => match guarded(|| self.gate_of_prober(node)) {
                Some(gate) => gate,
                None => return self.finish(node, false, panicked()),
            },
            gate => gate,
        };
        match gate {
            Gate::Look => unreachable!("the looks have been taken"),
            Gate::Skip(reason) => {
                let outcome = self.held_back(node, reason);
                self.finish(node, false, outcome);
            }
            Gate::Run {
                refreshed_by,
                upstream_pending,
            } => {
                self.started(node);
                let outcome = guarded(|| self.step(node, refreshed_by, upstream_pending));
                self.finish(node, upstream_pending, outcome.unwrap_or_else(panicked));
            }
        }
    }

    pub(super) fn started(&self, node: u32) {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        self.context.sink.tell(Event::Started {
            number,
            reference: &self.plan.steps[node as usize].reference,
        });
    }

    /// Tells what came of a step and lets those behind it start.
    pub(super) fn finish(&self, node: u32, upstream_pending: bool, outcome: Outcome) {
        let step = &self.plan.steps[node as usize];
        let failed = outcome.status == Status::Failed;
        // A state that something else kept from running counts as failed too.
        let ends = failed || step.state.is_some() && outcome.result() == Some(false);
        let mut board = self.board();
        if let (Some(name), false) = (
            &step.control.register,
            failed || outcome.status == Status::Skipped,
        ) {
            board
                .outputs
                .insert(name.clone(), self.registered(&outcome));
        }
        let finished = self.finished(board.next_number(), node, outcome);
        // Told under the lock, so that events come in the order of their numbers.
        self.context.sink.tell(Event::Finished(&finished));
        board.finish(node, upstream_pending, finished);
        if ends && (self.failhard || step.control.failhard) && board.ended.is_none() {
            board.ended = Some(RunEnd::FailHard((*step.reference).clone()));
        }
        let over = board.is_over();
        drop(board);
        if over {
            self.more.notify_all();
        }
    }

    pub(super) fn finished(&self, number: usize, node: u32, outcome: Outcome) -> Finished {
        let step = &self.plan.steps[node as usize];
        Finished {
            number,
            reference: std::sync::Arc::clone(&step.reference),
            place: std::sync::Arc::clone(&step.place),
            state: step.state.clone(),
            outcome: self.without_secrets(step, outcome),
        }
    }

    fn report_never_run(&self) {
        let mut board = self.board();
        let Some(end) = board.ended.clone() else {
            return;
        };
        for node in board.never_run() {
            let outcome = Outcome::skipped(Reason::RunEnded(end.clone()));
            let finished = self.finished(board.next_number(), node, outcome);
            self.context.sink.tell(Event::Finished(&finished));
            board.push(finished);
        }
    }
}

/// A provider with a bug fails its resource, not the run: the others would
/// wait for ever for a worker that is gone.
pub(super) fn guarded<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

pub(super) fn panicked() -> Outcome {
    let error = crate::StepError::new("the provider broke down: this is a bug in it");
    super::step::failure(Vec::new(), &error)
}
