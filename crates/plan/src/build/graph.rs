//! A graph of numbers, with properties computed in one traversal.

pub(super) struct Graph {
    /// The predecessors that each one waits for.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
}

impl Graph {
    pub(super) fn new(before: Vec<Vec<usize>>) -> Self {
        let mut after = vec![Vec::new(); before.len()];
        for (one, befores) in before.iter().enumerate() {
            for other in befores {
                after[*other].push(one);
            }
        }
        Self { before, after }
    }

    /// Returns an order in which each comes after its predecessors. Those on or behind a
    /// cycle are missing.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut missing: Vec<usize> = self.before.iter().map(Vec::len).collect();
        let mut order: Vec<usize> = (0..missing.len())
            .filter(|one| missing[*one] == 0)
            .collect();
        let mut at = 0;
        while let Some(one) = order.get(at).copied() {
            at += 1;
            for other in &self.after[one] {
                missing[*other] -= 1;
                if missing[*other] == 0 {
                    order.push(*other);
                }
            }
        }
        order
    }

    /// Returns the length of the longest chain that ends in each, itself included. The graph
    /// must have no cycles.
    pub(super) fn levels(&self) -> Vec<u32> {
        let mut levels = vec![1u32; self.before.len()];
        for one in self.order() {
            for other in &self.after[one] {
                levels[*other] = levels[*other].max(levels[one] + 1);
            }
        }
        levels
    }

    /// Returns a cycle, each element waiting for the next.
    pub(super) fn cycle(&self) -> Option<Vec<usize>> {
        let mut stuck = vec![true; self.before.len()];
        for one in self.order() {
            stuck[one] = false;
        }
        let mut at = stuck.iter().position(|stuck| *stuck)?;
        // Each stuck one waits for another stuck one, so the walk ends in a cycle.
        let mut seen = vec![usize::MAX; self.before.len()];
        let mut path = Vec::new();
        while seen[at] == usize::MAX {
            seen[at] = path.len();
            path.push(at);
            at = self.before[at]
                .iter()
                .copied()
                .find(|other| stuck[*other])?;
        }
        Some(path.split_off(seen[at]))
    }

    /// Returns `true` if `to` can be reached from `from` along waits in reverse, other than
    /// directly.
    pub(super) fn leads_around(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.after.len()];
        let mut waiting: Vec<usize> = self.after[from]
            .iter()
            .copied()
            .filter(|next| *next != to)
            .collect();
        while let Some(one) = waiting.pop() {
            if one == to {
                return true;
            }
            if !std::mem::replace(&mut seen[one], true) {
                waiting.extend(&self.after[one]);
            }
        }
        false
    }
}
