//! `prereq`: looks at the targets as a noop run would, before they run.

use super::Run;
use super::gate::Gate;
use super::salt_gate::{Answer, Look, answer};
use crate::plan::Step;
use crate::sight::Sight;
use crate::{Outcome, Reason, Status};

impl Run<'_> {
    /// Decides if a state that looks at its targets may run.
    pub(super) fn gate_of_prober(&self, node: u32) -> Gate {
        let targets = self.plan.probes.get(&node).cloned().unwrap_or_default();
        let looks: Vec<Look> = targets
            .iter()
            .filter_map(|target| self.look(*target, 0))
            .collect();
        self.board().gate_with(node, &looks)
    }

    /// Returns the result of looking at a state. The first look is reused for all callers.
    fn look(&self, target: u32, depth: usize) -> Option<Look> {
        let step = self.plan.steps.get(target as usize)?;
        if self.plan.is_left_out(target) {
            return Some(Look::Result(Some(true), None));
        }
        if let Some(known) = self.board().looks.get(&target) {
            return Some(known.clone());
        }
        // Cycles are refused before a run. This is only a limit for the stack.
        let own = self.plan.probes.get(&target).filter(|_| depth < 1000);
        let looks: Vec<Look> = own
            .into_iter()
            .flatten()
            .filter_map(|next| self.look(*next, depth + 1))
            .collect();
        let said = answer(self.plan, target, self.board().marks(), &looks, false);
        let look = match said {
            Answer::Failed(cause) => Look::Blocked(cause),
            Answer::NotAskedFor(requisite) => Look::NotAskedFor(requisite),
            Answer::Run { .. } => self.look_at(step),
        };
        self.board().looks.insert(target, look.clone());
        Some(look)
    }

    fn look_at(&self, step: &Step) -> Look {
        let sight = Sight {
            noop: true,
            ..self.sight(step, false)
        };
        let seen = if step.control.has_guards() {
            self.guarded(step, &sight)
        } else {
            Ok(None)
        };
        let seen = seen.and_then(|guarded| {
            if guarded.is_some() {
                return Ok(false);
            }
            let prepared = self.prepared(step)?;
            let observing = prepared.instance().observe(&sight)?;
            prepared.instance().verdict(&observing, true)?;
            Ok(!observing.changes.is_empty())
        });
        // Its `check_cmd` also decides the result of a look.
        if !step.control.check_cmd.is_empty() {
            return match self.check(step, &sight) {
                Ok(()) => Look::Result(Some(true), None),
                Err(error) => Look::Result(Some(false), Some(error.chain())),
            };
        }
        match seen {
            Ok(true) => Look::Result(None, None),
            Ok(false) => Look::Result(Some(true), None),
            Err(error) => Look::Result(Some(false), Some(error.chain())),
        }
    }

    /// Returns the outcome of a state whose prerequisite failed, as the look saw it.
    pub(super) fn held_back(&self, node: u32, reason: Reason) -> Outcome {
        let Reason::PrerequisiteFailed(_) = &reason else {
            return Outcome::skipped(reason);
        };
        match self.look(node, 0) {
            Some(Look::NotAskedFor(requisite)) => {
                Outcome::skipped(Reason::NotAskedFor { requisite })
            }
            Some(Look::Result(Some(true), _)) => Outcome::new(Status::Unchanged),
            Some(Look::Result(Some(false), why)) => {
                let mut outcome = Outcome::new(Status::Failed);
                outcome.message = why;
                outcome
            }
            _ => Outcome::skipped(reason),
        }
    }
}
