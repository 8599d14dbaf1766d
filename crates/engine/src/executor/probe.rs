//! `prereq`: looks at the targets as a noop run would, before they run.

use super::Run;
use super::gate::GateDecision;
use super::salt_gate::{Answer, NoopResult, answer};
use crate::access::ReadAccess;
use crate::plan::Step;
use crate::{Reason, ResourceOutcome, Status};

impl Run<'_> {
    /// Decides if a state that looks at its targets may run.
    pub(super) fn gate_of_prober(&self, node: u32) -> GateDecision {
        let targets = self.plan.probes.get(&node).cloned().unwrap_or_default();
        let looks: Vec<NoopResult> = targets
            .iter()
            .filter_map(|target| self.look(*target, 0))
            .collect();
        self.board().gate_with(node, &looks)
    }

    /// Returns the result of looking at a state. The first look is reused for all callers.
    fn look(&self, target: u32, depth: usize) -> Option<NoopResult> {
        let step = self.plan.steps.get(target as usize)?;
        if self.plan.is_left_out(target) {
            return Some(NoopResult::Result(Some(true), None));
        }
        if let Some(known) = self.board().looks.get(&target) {
            return Some(known.clone());
        }
        // Cycles are refused before a run. This is only a limit for the stack.
        let own = self.plan.probes.get(&target).filter(|_| depth < 1000);
        let looks: Vec<NoopResult> = own
            .into_iter()
            .flatten()
            .filter_map(|next| self.look(*next, depth + 1))
            .collect();
        let said = answer(self.plan, target, self.board().marks(), &looks, false);
        let look = match said {
            Answer::Failed(causes) => {
                NoopResult::Blocked(causes.first().copied().unwrap_or(target))
            }
            Answer::NotAskedFor(requisite) => NoopResult::NotAskedFor(requisite),
            Answer::Run { .. } => self.look_at(step),
        };
        self.board().looks.insert(target, look.clone());
        Some(look)
    }

    fn look_at(&self, step: &Step) -> NoopResult {
        let access = ReadAccess {
            noop: true,
            ..self.access(step, false)
        };
        let seen = if step.control.has_guards() {
            self.guarded(step, &access)
        } else {
            Ok(None)
        };
        let seen = seen.and_then(|guarded| {
            if guarded.is_some() {
                return Ok(false);
            }
            let prepared = self.prepared(step)?;
            let observing = prepared.instance().observe(&access)?;
            prepared.instance().verdict(&observing, true)?;
            Ok(!observing.changes.is_empty())
        });
        // Its `check_cmd` also decides the result of a look.
        if !step.control.check_cmd.is_empty() {
            return match self.check(step, &access) {
                Ok(()) => NoopResult::Result(Some(true), None),
                Err(error) => NoopResult::Result(Some(false), Some(error.chain())),
            };
        }
        match seen {
            Ok(true) => NoopResult::Result(None, None),
            Ok(false) => NoopResult::Result(Some(true), None),
            Err(error) => NoopResult::Result(Some(false), Some(error.chain())),
        }
    }

    /// Returns the outcome of a state whose prerequisite failed, as the look saw it.
    pub(super) fn held_back(&self, node: u32, reasons: Vec<Reason>) -> ResourceOutcome {
        let Some(Reason::PrerequisiteFailed(_)) = reasons.first() else {
            return ResourceOutcome::skipped_for(reasons);
        };
        match self.look(node, 0) {
            Some(NoopResult::NotAskedFor(requisite)) => {
                ResourceOutcome::skipped(Reason::NotAskedFor { requisite })
            }
            Some(NoopResult::Result(Some(true), _)) => ResourceOutcome::new(Status::Unchanged),
            Some(NoopResult::Result(Some(false), why)) => {
                let mut outcome = ResourceOutcome::new(Status::Failed);
                outcome.message = why;
                outcome
            }
            _ => ResourceOutcome::skipped_for(reasons),
        }
    }
}
