//! Salt's order: among the states that are ready, the one with the smallest `order` comes next. A
//! state counts as early as the earliest of those that wait for it.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use serde_json::Value;

use super::graph::Graph;
use super::{Chunk, OrderKind};
use crate::problem::Problem;

/// Salt's sort key: the effective order, the own order, the label.
#[derive(PartialEq)]
struct SortKey {
    effective: f64,
    own: f64,
    label: String,
    tag: String,
}

impl Eq for SortKey {}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.effective
            .total_cmp(&other.effective)
            .then(self.own.total_cmp(&other.own))
            .then_with(|| self.label.cmp(&other.label))
            .then_with(|| self.tag.cmp(&other.tag))
    }
}

/// Returns the states in the order of the run, or the cycle that prevents one.
pub(super) fn order(chunks: &[Chunk], graph: &Graph) -> Result<Vec<u32>, Box<Problem>> {
    let mut ranking = Ranking::new(chunks, graph);
    let mut waiting = graph.waits_for.clone();
    let mut ready = BinaryHeap::new();
    for node in 0..waiting.len() as u32 {
        if waiting[node as usize] == 0 {
            ready.push(Reverse((ranking.rank(node), node)));
        }
    }
    let mut order = Vec::with_capacity(chunks.len());
    let mut done = 0;
    while let Some(Reverse((_, node))) = ready.pop() {
        done += 1;
        // The check of a state comes before its run and is not a run itself.
        if (node as usize) < chunks.len() {
            order.push(node);
        }
        for (target, _) in &graph.outgoing[node as usize] {
            waiting[*target as usize] -= 1;
            if waiting[*target as usize] == 0 {
                ready.push(Reverse((ranking.rank(*target), *target)));
            }
        }
    }
    if done == waiting.len() {
        Ok(order)
    } else {
        Err(Box::new(cycle(chunks, graph, &waiting)))
    }
}

struct Ranking<'a> {
    chunks: &'a [Chunk],
    graph: &'a Graph,
    cap: f64,
    /// The order of each state, as far as it is computed. Salt computes it on the way, and uses the
    /// raw number for states not yet reached.
    orders: Vec<Option<f64>>,
}

impl<'a> Ranking<'a> {
    fn new(chunks: &'a [Chunk], graph: &'a Graph) -> Self {
        let mut cap = 1;
        for order in chunks.iter().filter_map(|chunk| chunk.order.as_i64()) {
            if order > cap - 1 && order > 0 {
                cap = order + 100;
            }
        }
        Self {
            chunks,
            graph,
            cap: cap as f64,
            orders: vec![None; chunks.len()],
        }
    }

    fn raw(&self, state: usize) -> f64 {
        match &self.chunks[state].order {
            Value::Number(number) => number.as_f64().unwrap_or(self.cap),
            Value::String(word) if word == "last" => self.cap + 1_000_000.0,
            Value::String(word) if word == "first" => 0.0,
            Value::Bool(truth) => f64::from(u8::from(*truth)),
            _ => self.cap,
        }
    }

    fn rank(&mut self, node: u32) -> SortKey {
        let state = self.graph.state_of[node as usize] as usize;
        let chunk = &self.chunks[state];
        let own = match self.orders[state] {
            Some(order) => order,
            None => {
                let mut order = self.raw(state) + chunk.name_order as f64 / 10_000.0;
                if order < 0.0 {
                    order += self.cap + 1_000_000.0;
                }
                self.orders[state] = Some(order);
                order
            }
        };
        let mut earliest = f64::INFINITY;
        let mut weight = None::<OrderKind>;
        for (target, kind) in &self.graph.outgoing[node as usize] {
            if weight.is_none_or(|weight| weight <= *kind) {
                weight = Some(*kind);
                let target = self.graph.state_of[*target as usize] as usize;
                let order = self.orders[target].unwrap_or_else(|| self.raw(target));
                earliest = earliest.min(order);
            }
        }
        SortKey {
            effective: own.min(earliest),
            own,
            label: format!("{}{}{}", chunk.module, chunk.name, chunk.function),
            tag: format!(
                "{}_|-{}_|-{}_|-{}",
                chunk.module, chunk.id, chunk.name, chunk.function
            ),
        }
    }
}

/// Returns one cycle among the nodes that still wait, with every location on it.
fn cycle(chunks: &[Chunk], graph: &Graph, waiting: &[u32]) -> Problem {
    let mut before: Vec<Option<(u32, OrderKind)>> = vec![None; waiting.len()];
    for (from, edges) in graph.outgoing.iter().enumerate() {
        for (to, kind) in edges {
            if waiting[from] > 0 && waiting[*to as usize] > 0 {
                before[*to as usize] = Some((from as u32, *kind));
            }
        }
    }
    let start = (0..waiting.len())
        .find(|node| waiting[*node] > 0 && before[*node].is_some())
        .unwrap_or(0);
    let mut path: Vec<(u32, OrderKind)> = Vec::new();
    let mut position = vec![usize::MAX; waiting.len()];
    let mut node = start as u32;
    while position[node as usize] == usize::MAX {
        position[node as usize] = path.len();
        let Some((from, kind)) = before[node as usize] else {
            break;
        };
        path.push((node, kind));
        node = from;
    }
    let round = &path[position[node as usize].min(path.len())..];
    let shown = |node: u32| {
        let chunk = &chunks[graph.state_of[node as usize] as usize];
        format!("`{}: {}`", chunk.module, chunk.id)
    };
    let at = |node: u32| {
        chunks[graph.state_of[node as usize] as usize]
            .spot
            .location()
    };
    let first = round.first().map_or(node, |(node, _)| *node);
    let mut problem = Problem::new(
        format!("dependency cycle of states, starting with {}", shown(first)),
        at(first),
    );
    for (index, (waiter, kind)) in round.iter().enumerate() {
        let next = round.get(index + 1).map_or(first, |(next, _)| *next);
        let word = kind_word(chunks, graph, *waiter, next, *kind);
        problem = problem.also(
            format!("{} waits for {} ({word})", shown(*waiter), shown(next)),
            at(*waiter),
        );
    }
    problem.hint("remove one of these requisites")
}

/// Returns the word for a wait. A wait caused by a `prereq` of the other state has that name.
fn kind_word(
    chunks: &[Chunk],
    graph: &Graph,
    waiter: u32,
    target: u32,
    kind: OrderKind,
) -> &'static str {
    let chunk = &chunks[graph.state_of[waiter as usize] as usize];
    let _ = target;
    let own = chunk.requisites.iter().any(|(word, _)| word == kind.name());
    match (kind, own) {
        (OrderKind::Require, false)
            if !chunk.requisites.iter().any(|(word, _)| word == "require") =>
        {
            "prereq or an output"
        }
        _ => kind.name(),
    }
}
