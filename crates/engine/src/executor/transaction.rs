//! One transaction for a group: observe all members, change those that need it.

use super::Run;
use super::gate::GateDecision;
use super::step::{StepInstance, failure};
use super::worker::{guarded, panicked};
use crate::StepError;
use crate::types::PendingResource;

impl Run<'_> {
    /// Runs a group. Members that may not run finish first. The others run together.
    pub(super) fn group(&self, members: Vec<(u32, GateDecision)>) {
        let mut together = Vec::new();
        for (node, gate) in members {
            match gate {
                GateDecision::Look => unreachable!("those that look at others are in no group"),
                GateDecision::Skip(reasons) => {
                    let outcome = self.held_back(node, reasons);
                    self.finish(node, false, outcome);
                }
                GateDecision::Run {
                    refreshed_by,
                    upstream_pending,
                } => {
                    together.push((node, refreshed_by, upstream_pending));
                }
            }
        }
        let begun = std::time::Instant::now();
        let prepared: Vec<StepInstance<'_>> = (together.iter())
            .map(|(node, ..)| {
                self.started(*node);
                let prepared = self.prepared(&self.plan.steps[*node as usize]);
                prepared.expect("members of a group wait for no outputs")
            })
            .collect();
        let Some(leader) = prepared.first() else {
            return;
        };
        let accesses: Vec<_> = (together.iter())
            .map(|(node, _, pending)| self.access(&self.plan.steps[*node as usize], *pending))
            .collect();
        let to_see: Vec<_> = prepared
            .iter()
            .zip(&accesses)
            .map(|(one, access)| (one.instance(), *access))
            .collect();
        let acted = guarded(|| {
            let seen = leader.instance().observe_group(&to_see);
            let applied = self.apply_group(&together, &prepared, &accesses, &seen);
            (seen, applied)
        });
        let Some((seen, applied)) = acted.filter(|(seen, _)| seen.len() == together.len()) else {
            for (node, _, upstream_pending) in together {
                self.finish(node, upstream_pending, panicked());
            }
            return;
        };
        for (index, (seen, applied)) in seen.into_iter().zip(applied).enumerate() {
            let (node, refreshed_by, upstream_pending) = together[index];
            let step = &self.plan.steps[node as usize];
            let mut outcome = match (seen, applied) {
                (Err(error), _) => failure(Vec::new(), &error),
                (Ok(observing), Some(Err(error))) => {
                    let instance = prepared[index].instance();
                    self.outcome(step, instance, observing, refreshed_by, Err(error))
                        .0
                }
                (Ok(observing), applied) => {
                    let applied = applied.and_then(Result::ok);
                    let instance = prepared[index].instance();
                    let result = self.act(
                        step,
                        &accesses[index],
                        instance,
                        &observing,
                        applied,
                        refreshed_by.is_some(),
                    );
                    self.outcome(step, instance, observing, refreshed_by, result)
                        .0
                }
            };
            outcome.attempts = 1;
            outcome.duration = begun.elapsed();
            self.finish(node, upstream_pending, outcome);
        }
    }

    /// Returns for each member `None` if there is nothing to apply (or in noop), or
    /// else its result.
    fn apply_group(
        &self,
        together: &[(u32, Option<u32>, bool)],
        prepared: &[StepInstance<'_>],
        accesses: &[crate::ReadAccess<'_>],
        seen: &[Result<PendingResource, StepError>],
    ) -> Vec<Option<Result<crate::ApplyResult, StepError>>> {
        let mut answers: Vec<Option<Result<_, _>>> = seen.iter().map(|_| None).collect();
        let Some(licence) = &self.licence else {
            return answers;
        };
        let mut positions = Vec::new();
        let mut group = Vec::new();
        for (index, observing) in seen.iter().enumerate() {
            let step = &self.plan.steps[together[index].0 as usize];
            if let Ok(observing) = observing
                && !observing.changes.is_empty()
                && !step.control.noop
            {
                positions.push(index);
                group.push((
                    prepared[index].instance(),
                    observing,
                    licence.write_access(accesses[index]),
                ));
            }
        }
        if group.is_empty() {
            return answers;
        }
        let results = group[0].0.apply_group(&group);
        for (position, result) in positions.into_iter().zip(results) {
            answers[position] = Some(result);
        }
        answers
    }
}
