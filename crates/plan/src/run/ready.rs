//! Steps that could start, ordered by the longest chain of steps behind them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use bunraku_wire::api::ordered_runs::{RunPlan, StepIndex};

#[derive(Clone, Debug)]
pub(super) struct ReadySteps {
    /// One set, or one per group if groups are barriers.
    sets: Vec<BTreeSet<(Reverse<u32>, StepIndex)>>,
    /// Length of the longest chain of steps behind each step.
    behind: Vec<u32>,
    /// The index of each step's set.
    set: Vec<usize>,
}

impl ReadySteps {
    pub(super) fn new(plan: &RunPlan, after: &[Vec<StepIndex>], by_group: bool) -> Self {
        let count = plan.steps.len();
        let mut behind = vec![0u32; count];
        // Steps are ordered so that those behind come later.
        for at in (0..count).rev() {
            let longest = after[at].iter().map(|next| behind[next.at()] + 1).max();
            behind[at] = longest.unwrap_or(0);
        }
        let set = plan
            .steps
            .iter()
            .map(|step| if by_group { step.group as usize - 1 } else { 0 })
            .collect();
        let sets = if by_group { plan.groups.len() } else { 1 };
        Self {
            sets: vec![BTreeSet::new(); sets.max(1)],
            behind,
            set,
        }
    }

    pub(super) fn insert(&mut self, step: StepIndex) {
        let key = (Reverse(self.behind[step.at()]), step);
        self.sets[self.set[step.at()]].insert(key);
    }

    pub(super) fn remove(&mut self, step: StepIndex) {
        let key = (Reverse(self.behind[step.at()]), step);
        self.sets[self.set[step.at()]].remove(&key);
    }

    /// Removes and returns the next step. With barriers, only from this group (counted from
    /// 0).
    pub(super) fn pop(&mut self, group: usize) -> Option<StepIndex> {
        let set = match self.sets.len() {
            1 => self.sets.first_mut(),
            _ => self.sets.get_mut(group),
        };
        set?.pop_first().map(|(_, step)| step)
    }
}
