//! Splits nodes that wait for each other into passes.
//!
//! A component's level counts how often the path to it changes the node. Units of one node
//! and level form a step, so edges between steps only go upwards. Steps of a node are joined
//! again if no path leads from one to the other through a third, so that no node runs more
//! often than necessary.

use std::collections::BTreeMap;

use super::graph::Graph;
use super::units::Units;

/// Maximum number of steps to join. Joining costs a search per pair.
const MOST_JOINED: usize = 2_000;

/// Returns the node and pass of each unit. The graph of units must have no cycle.
pub(super) fn split(units: &Units, nodes: &[usize]) -> Vec<(usize, u32)> {
    let levels = levels(units, nodes);
    let mut step_of: Vec<(usize, u32)> = nodes.iter().copied().zip(levels).collect();
    let mut joinable = distinct(&step_of);
    if joinable.len() <= MOST_JOINED {
        let mut at = 0;
        while at + 1 < joinable.len() {
            let (one, next) = (joinable[at], joinable[at + 1]);
            if one.0 == next.0 && !leads_around(units, &step_of, one, next) {
                for step in step_of.iter_mut().filter(|step| **step == next) {
                    *step = one;
                }
                joinable.remove(at + 1);
            } else {
                at += 1;
            }
        }
    }
    numbered(&step_of)
}

fn levels(units: &Units, nodes: &[usize]) -> Vec<u32> {
    let befores = units
        .needs
        .iter()
        .map(|needs| needs.iter().map(|need| need.from).collect());
    let mut levels = vec![0u32; units.list.len()];
    for unit in Graph::new(befores.collect()).order() {
        for need in &units.needs[unit] {
            let moves = u32::from(nodes[need.from] != nodes[unit]);
            levels[unit] = levels[unit].max(levels[need.from] + moves);
        }
    }
    levels
}

fn distinct(step_of: &[(usize, u32)]) -> Vec<(usize, u32)> {
    let mut steps = step_of.to_vec();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// Returns `true` if a path leads from one step to the other through a third.
fn leads_around(
    units: &Units,
    step_of: &[(usize, u32)],
    one: (usize, u32),
    next: (usize, u32),
) -> bool {
    let steps = distinct(step_of);
    let number: BTreeMap<(usize, u32), usize> = steps.iter().copied().zip(0..).collect();
    let mut before = vec![std::collections::BTreeSet::new(); steps.len()];
    for (unit, needs) in units.needs.iter().enumerate() {
        let step = number[&step_of[unit]];
        before[step].extend(
            needs
                .iter()
                .map(|need| number[&step_of[need.from]])
                .filter(|from| *from != step),
        );
    }
    for pair in steps.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        before[number[&pair[1]]].insert(number[&pair[0]]);
    }
    let graph = Graph::new(
        before
            .into_iter()
            .map(|one| one.into_iter().collect())
            .collect(),
    );
    graph.leads_around(number[&one], number[&next])
}

/// Numbers the passes of each node from 1.
fn numbered(step_of: &[(usize, u32)]) -> Vec<(usize, u32)> {
    let mut passes: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    let mut last = None;
    let mut pass = 0;
    for step in distinct(step_of) {
        pass = if last == Some(step.0) { pass + 1 } else { 1 };
        last = Some(step.0);
        passes.insert(step, pass);
    }
    step_of.iter().map(|step| (step.0, passes[step])).collect()
}
