//! Cycles: components that need each other, and nodes that wait for each other.

use super::graph::Graph;
use super::units::{Need, Units};
use crate::problem::Problem;

/// Finds a cycle of components, which can never run.
pub(super) fn between_components(units: &Units) -> Option<Problem> {
    let graph = Graph::new(
        units
            .needs
            .iter()
            .map(|needs| needs.iter().map(|need| need.from).collect())
            .collect(),
    );
    let cycle = graph.cycle()?;
    let mut problem = Problem::new("components need each other in a circle");
    for (one, next) in round(&cycle) {
        let unit = &units.list[one];
        let what = needed(units, one, next).map_or_else(String::new, |need| said(units, need));
        problem = problem.detail(format!("{} on {} {what}", unit.component, unit.node));
    }
    Some(problem.hint("no order satisfies this: one of these needs has to go"))
}

/// Finds a cycle of nodes. Nodes may wait for each other in a cycle even if their components
/// do not.
pub(super) fn between_nodes(units: &Units, groups: &[(usize, u32)]) -> Option<Problem> {
    let count = groups.iter().map(|(node, _)| node + 1).max().unwrap_or(0);
    let mut before = vec![std::collections::BTreeSet::new(); count];
    for (unit, needs) in units.needs.iter().enumerate() {
        let node = groups[unit].0;
        before[node].extend(
            needs
                .iter()
                .map(|need| groups[need.from].0)
                .filter(|from| *from != node),
        );
    }
    let graph = Graph::new(
        before
            .into_iter()
            .map(|one| one.into_iter().collect())
            .collect(),
    );
    let cycle = graph.cycle()?;
    let mut problem =
        Problem::new("nodes wait for each other in a circle, although their components do not");
    for (one, next) in round(&cycle) {
        let edge = units.needs.iter().enumerate().find_map(|(unit, needs)| {
            let need = needs.iter().find(|need| groups[need.from].0 == next)?;
            (groups[unit].0 == one).then_some((unit, need))
        });
        if let Some((unit, need)) = edge {
            let unit = &units.list[unit];
            let other = &units.list[need.from].node;
            let what = said(units, need);
            problem = problem.detail(format!(
                "{} waits for {other}: {} {what}",
                unit.node, unit.component
            ));
        }
    }
    Some(
        problem.hint(
            "`--passes` runs such nodes more than once, each time only the components concerned",
        ),
    )
}

/// Pairs each element with the next one, and the last with the first.
fn round(cycle: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let next = cycle.iter().skip(1).chain(cycle.first());
    cycle.iter().copied().zip(next.copied())
}

fn needed(units: &Units, one: usize, from: usize) -> Option<&Need> {
    units.needs[one].iter().find(|need| need.from == from)
}

fn said(units: &Units, need: &Need) -> String {
    let from = &units.list[need.from].component;
    match &need.capability {
        Some(capability) => format!("needs {capability} of {from}"),
        None => format!("comes after {from}"),
    }
}
