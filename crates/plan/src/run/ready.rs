//! Steps that could start, ordered by the longest chain of steps behind them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use bunraku_wire::api::ordered_runs::{RunOptions, RunPlan, StepIndex};

#[derive(Clone, Debug)]
pub(super) struct ReadySteps {
    /// One set for each batch, or for each group and batch if groups are barriers.
    sets: Vec<BTreeSet<(Reverse<u32>, StepIndex)>>,
    /// Length of the longest chain of steps behind each step.
    behind: Vec<u32>,
    /// The index of each step's set.
    set: Vec<usize>,
    /// The batches by name. Without batches, one.
    batches: Vec<String>,
    by_group: bool,
}

impl ReadySteps {
    pub(super) fn new(plan: &RunPlan, after: &[Vec<StepIndex>], options: &RunOptions) -> Self {
        let count = plan.steps.len();
        let mut behind = vec![0u32; count];
        // Steps are ordered so that those behind come later.
        for at in (0..count).rev() {
            let longest = after[at].iter().map(|next| behind[next.at()] + 1).max();
            behind[at] = longest.unwrap_or(0);
        }
        let by_group = options.by_group;
        let name = |batch: &Option<String>| match options.batch_by {
            Some(_) => batch.clone().unwrap_or_default(),
            None => String::new(),
        };
        let names: BTreeSet<String> = plan.steps.iter().map(|step| name(&step.batch)).collect();
        let batches: Vec<String> = names.into_iter().collect();
        let set = plan.steps.iter().map(|step| {
            let group = if by_group { step.group as usize - 1 } else { 0 };
            let batch = batches.binary_search(&name(&step.batch)).unwrap_or(0);
            group * batches.len() + batch
        });
        let set = set.collect();
        let groups = if by_group { plan.groups.len() } else { 1 };
        Self {
            sets: vec![BTreeSet::new(); groups.max(1) * batches.len().max(1)],
            behind,
            set,
            batches,
            by_group,
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

    pub(super) fn is_empty(&self) -> bool {
        self.sets.iter().all(BTreeSet::is_empty)
    }

    pub(super) fn has_batches(&self) -> bool {
        self.batches.len() > 1
    }

    pub(super) fn batch_name(&self, batch: usize) -> &str {
        self.batches.get(batch).map_or("", String::as_str)
    }

    /// Returns whether a step of this group (counted from 0) and batch could start.
    pub(super) fn has(&self, group: usize, batch: usize) -> bool {
        !self.sets[self.place(group, batch)].is_empty()
    }

    /// Returns the first batch, by name, that has a step that could start.
    pub(super) fn first_batch(&self, group: usize) -> Option<usize> {
        (0..self.batches.len()).find(|batch| self.has(group, *batch))
    }

    /// Removes and returns the next step of a batch. With barriers, only from this group (counted
    /// from 0).
    pub(super) fn pop(&mut self, group: usize, batch: usize) -> Option<StepIndex> {
        let place = self.place(group, batch);
        self.sets[place].pop_first().map(|(_, step)| step)
    }

    fn place(&self, group: usize, batch: usize) -> usize {
        let group = if self.by_group { group } else { 0 };
        group * self.batches.len().max(1) + batch
    }
}
