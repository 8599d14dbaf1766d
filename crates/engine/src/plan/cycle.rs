//! Finding cycles.

use super::{CatalogPlan, CycleStep, Edge, Graph, PlanError};

/// After this many cycles, all inferred edges among the stuck nodes are dropped.
const ONE_BY_ONE: usize = 64;

/// Drops inferred edges until there is no cycle. A cycle of declared edges alone is an
/// error, with its whole path.
pub(super) fn make_acyclic(plan: &mut CatalogPlan) -> Result<(), PlanError> {
    for round in 0.. {
        if plan.graph.topological.len() == plan.graph.nodes() {
            return Ok(());
        }
        let stuck = plan.graph.stuck();
        let cycle = one_cycle(&plan.graph, &stuck);
        if !cycle.iter().any(|edge| edge.inferred) {
            return Err(PlanError::Cycle(described(plan, &cycle)));
        }
        let gives_way = |edge: &Edge| {
            edge.inferred
                && if round < ONE_BY_ONE {
                    cycle.iter().any(|on_cycle| on_cycle == edge)
                } else {
                    stuck[edge.from as usize] && stuck[edge.to as usize]
                }
        };
        let nodes = plan.graph.nodes();
        let (dropped, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut plan.graph)
            .into_edges()
            .into_iter()
            .partition(gives_way);
        plan.gave_way.extend(dropped);
        plan.graph = Graph::new(nodes, kept);
    }
    Ok(())
}

/// Returns one cycle. Walks backwards among the stuck nodes, each of which waits for
/// another stuck one, until a node comes up twice. The edges are in forward order.
fn one_cycle(graph: &Graph, stuck: &[bool]) -> Vec<Edge> {
    let start = stuck
        .iter()
        .position(|stuck| *stuck)
        .expect("some node is stuck") as u32;
    let mut seen_at = vec![usize::MAX; stuck.len()];
    let mut path: Vec<Edge> = Vec::new();
    let mut node = start;
    loop {
        if seen_at[node as usize] != usize::MAX {
            let mut cycle = path.split_off(seen_at[node as usize]);
            cycle.reverse();
            // The same catalog always shows the same path.
            let first = (0..cycle.len()).min_by_key(|index| cycle[*index].from);
            cycle.rotate_left(first.unwrap_or(0));
            return cycle;
        }
        seen_at[node as usize] = path.len();
        let edge = (graph.incoming(node).iter())
            .find(|edge| stuck[edge.from as usize])
            .expect("a stuck node waits for a stuck node");
        path.push(*edge);
        node = edge.from;
    }
}

fn described(plan: &CatalogPlan, cycle: &[Edge]) -> Vec<CycleStep> {
    let mut steps: Vec<CycleStep> = cycle
        .iter()
        .map(|edge| CycleStep {
            reference: plan.reference_of(edge.from).clone(),
            place: plan.place_of(edge.from).clone(),
            word: edge.why,
        })
        .collect();
    // A container's two nodes are one resource for users.
    steps.dedup_by(|later, earlier| {
        let same = later.reference == earlier.reference;
        if same {
            earlier.word = later.word;
        }
        same
    });
    steps
}
