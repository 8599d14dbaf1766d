//! `listen`: one refresh at the very end, even if many changes requested it.

use super::Run;
use crate::{Reason, ResourceOutcome, Status};

impl Run<'_> {
    /// Refreshes every listener that received a change, once, in file order.
    pub(super) fn listen(&self) {
        let mut heard: Vec<(u32, u32)> = Vec::new();
        {
            let board = self.board();
            // After a failure that ends the run, listeners still have their turn, as in Salt.
            if board.ended == Some(crate::RunEnd::Interrupted) {
                return;
            }
            for (listener, targets) in &self.plan.listens {
                if self.plan.is_left_out(*listener) {
                    continue;
                }
                let changed = targets
                    .iter()
                    .find(|target| board.marks()[**target as usize].has_changes);
                if let Some(target) = changed
                    && !heard.iter().any(|(known, _)| known == listener)
                {
                    heard.push((*listener, *target));
                }
            }
        }
        heard.sort_by_key(|(listener, _)| {
            self.plan
                .steps
                .get(*listener as usize)
                .map(|step| step.order)
        });
        for (listener, target) in heard {
            if self.context.cancellation.is_cancelled() {
                return;
            }
            self.refresh_at_end(listener, target);
        }
    }

    fn refresh_at_end(&self, listener: u32, target: u32) {
        let Some(step) = self.plan.steps.get(listener as usize) else {
            return;
        };
        let access = self.access(step, false);
        let refreshed = self.prepared(step).and_then(|prepared| {
            if step.control.has_guards() && self.guarded(step, &access)?.is_some() {
                return Ok(None);
            }
            let observing = prepared.instance().observe(&access)?;
            let Some(change) = prepared.instance().refresh_change(&observing) else {
                return Ok(None);
            };
            if let Some(licence) = self.licence.as_ref().filter(|_| !step.control.noop) {
                prepared
                    .instance()
                    .refresh(&observing, &licence.write_access(access))?;
            }
            Ok(Some(change))
        });
        let mut outcome = match refreshed {
            Ok(None) => return,
            Ok(Some(change)) => {
                let status = if self.licence.is_some() {
                    Status::Changed
                } else {
                    Status::Pending
                };
                let mut outcome = ResourceOutcome::new(status);
                outcome.changes.push(change);
                outcome.refreshed = true;
                outcome
            }
            Err(error) => super::step::failure(Vec::new(), &error),
        };
        outcome = self.checked(step, &access, outcome);
        outcome
            .reasons
            .push(Reason::RefreshedBy(self.plan.reference_of(target).clone()));
        let mut board = self.board();
        let finished = self.finished(board.next_number(), listener, outcome);
        self.context.sink.emit(crate::Event::Finished(&finished));
        board.push(finished);
    }
}
