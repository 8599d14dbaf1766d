//! Cycles: components that need each other, and nodes that wait for each other.

use super::graph::Graph;
use super::units::{FoundProblem, UnitDependency, Units};
use crate::problem::SiteProblem;

/// The number of cycles that are reported.
const MOST_CYCLES: usize = 20;

/// Finds cycles of components, which can never run. Each component is in one of them at most.
pub(super) fn between_components(units: &Units) -> Vec<FoundProblem> {
    let mut before: Vec<Vec<usize>> = (units.needs.iter())
        .map(|needs| needs.iter().map(|need| need.from).collect())
        .collect();
    let mut found = Vec::new();
    while found.len() < MOST_CYCLES
        && let Some(cycle) = Graph::new(before.clone()).cycle()
    {
        let mut problem = SiteProblem::new("dependency cycle of components");
        for (one, next) in round(&cycle) {
            let unit = &units.list[one];
            let what =
                needed(units, one, next).map_or_else(String::new, |need| reason(units, need));
            problem = problem.detail(format!("{} on {} {what}", unit.component, unit.node));
        }
        let members = cycle.iter().map(|at| &units.list[*at]);
        found.push(FoundProblem {
            problem: problem.hint("remove one of these dependencies"),
            components: members
                .map(|unit| (unit.application, unit.component.clone()))
                .collect(),
        });
        // Look for further cycles without these components.
        for (one, needs) in before.iter_mut().enumerate() {
            needs.retain(|from| !cycle.contains(from) && !cycle.contains(&one));
        }
    }
    found
}

/// Finds a cycle of nodes. Nodes may wait for each other in a cycle even if their components
/// do not.
pub(super) fn between_nodes(units: &Units, groups: &[(usize, u32)]) -> Option<SiteProblem> {
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
    let mut problem = SiteProblem::new("dependency cycle of nodes (but not of their components)");
    for (one, next) in round(&cycle) {
        let edge = units.needs.iter().enumerate().find_map(|(unit, needs)| {
            let need = needs.iter().find(|need| groups[need.from].0 == next)?;
            (groups[unit].0 == one).then_some((unit, need))
        });
        if let Some((unit, need)) = edge {
            let unit = &units.list[unit];
            let other = &units.list[need.from].node;
            let what = reason(units, need);
            problem = problem.detail(format!(
                "{} waits for {other}: {} {what}",
                unit.node, unit.component
            ));
        }
    }
    Some(
        problem.hint(
            "pass `--passes` to run such nodes more than once, with a part of their components each time",
        ),
    )
}

/// Pairs each element with the next one, and the last with the first.
fn round(cycle: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let next = cycle.iter().skip(1).chain(cycle.first());
    cycle.iter().copied().zip(next.copied())
}

fn needed(units: &Units, one: usize, from: usize) -> Option<&UnitDependency> {
    units.needs[one].iter().find(|need| need.from == from)
}

fn reason(units: &Units, need: &UnitDependency) -> String {
    let from = &units.list[need.from].component;
    match &need.capability {
        Some(capability) => format!("needs {capability} from {from}"),
        None => format!("comes after {from}"),
    }
}
