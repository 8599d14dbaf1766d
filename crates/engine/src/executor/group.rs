//! Resources that are cheaper together: the packages of one manager.
//!
//! Two members of one key may form a group when no path leads from one to the other. A
//! member's rank is the largest number of members on a path to it. Members of equal
//! rank never depend on each other, and none waits for a member of its own rank, so
//! waiting for all of a rank cannot deadlock. Two keys that wait for each other can
//! deadlock. Then, when nothing else is running, the largest group runs as it is.

use std::collections::HashMap;

use crate::OrderingMode;
use crate::plan::{Body, CatalogPlan};

/// The members that are held until their group is complete.
#[derive(Default)]
pub(super) struct Groups {
    /// Each member's group.
    group_of: HashMap<u32, usize>,
    /// For each group, the number of members still missing, and those that arrived.
    groups: Vec<(usize, Vec<u32>)>,
    complete: Vec<usize>,
}

impl Groups {
    pub(super) fn new(plan: &CatalogPlan) -> Self {
        if plan.mode != OrderingMode::Genius {
            return Self::default();
        }
        let mut by_key: HashMap<String, Vec<u32>> = HashMap::new();
        for (index, step) in plan.steps.iter().enumerate() {
            // A member that is decided at run time or guarded may not need the rest of the group.
            if let Body::Ready(instance) = &step.body
                && !plan.is_left_out(index as u32)
                && !step.control.has_guards()
                && step.control.retry.is_none()
                && !plan.probes.contains_key(&(index as u32))
                && let Some(key) = instance.batch_key()
            {
                by_key.entry(key).or_default().push(index as u32);
            }
        }
        let mut keys: Vec<_> = by_key
            .into_iter()
            .filter(|(_, members)| members.len() > 1)
            .collect();
        keys.sort_unstable();
        let mut groups = Self::default();
        for (_, members) in keys {
            groups.add(plan, &members);
        }
        groups
    }

    fn add(&mut self, plan: &CatalogPlan, members: &[u32]) {
        let mut is_member = vec![false; plan.graph.nodes()];
        for member in members {
            is_member[*member as usize] = true;
        }
        let mut rank = vec![0_u32; plan.graph.nodes()];
        for node in &plan.graph.topological {
            let above = plan.graph.incoming(*node).iter();
            let above = above
                .map(|edge| rank[edge.from as usize] + u32::from(is_member[edge.from as usize]));
            rank[*node as usize] = above.max().unwrap_or(0);
        }
        let mut by_rank: HashMap<u32, usize> = HashMap::new();
        for member in members {
            let group = *by_rank.entry(rank[*member as usize]).or_insert_with(|| {
                self.groups.push((0, Vec::new()));
                self.groups.len() - 1
            });
            self.groups[group].0 += 1;
            self.group_of.insert(*member, group);
        }
    }

    /// Holds a member that is ready to run. Returns false for a node without a group.
    pub(super) fn hold(&mut self, node: u32) -> bool {
        let Some(group) = self.group_of.get(&node).copied() else {
            return false;
        };
        let (to_come, held) = &mut self.groups[group];
        held.push(node);
        *to_come -= 1;
        if *to_come == 0 {
            self.complete.push(group);
        }
        true
    }

    pub(super) fn has_complete(&self) -> bool {
        !self.complete.is_empty()
    }

    /// Returns a complete group, or the largest one when nothing else is left to do.
    pub(super) fn take(&mut self, idle: bool) -> Option<Vec<u32>> {
        let group = match self.complete.pop() {
            Some(group) => group,
            None if idle => {
                (0..self.groups.len()).max_by_key(|group| self.groups[*group].1.len())?
            }
            None => return None,
        };
        let mut members = std::mem::take(&mut self.groups[group].1);
        members.sort_unstable();
        (!members.is_empty()).then_some(members)
    }
}
