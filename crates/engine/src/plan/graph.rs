//! The order as numbers: nodes, edges in both directions, and priorities.
//!
//! Everything is flat arrays and loops: memory is linear, and a chain of ten thousand
//! resources needs no stack.

/// The meaning of an edge for the node at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EdgeKind {
    /// Waits. A failure at the start blocks it.
    Require,
    /// Like `Require`, and a change at the start refreshes it.
    Refresh,
    /// Like `Refresh`, between a container and its content.
    Contain,
    /// Runs only if the start changed.
    OnChanges,
    /// Runs only if the start failed.
    OnFail,
    /// The start runs before it because of `prereq`. A failure of the start blocks it.
    Prereq,
    /// Waits, regardless of the result of the start.
    Order,
}

/// An edge: `to` waits for `from`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Edge {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) kind: EdgeKind,
    /// Edges of one node with the same number, if not 0, are evaluated together.
    pub(crate) group: u32,
    /// All edges of the group must agree. Otherwise one is enough.
    pub(crate) all: bool,
    pub(crate) inferred: bool,
    /// `require`, or the reason for an inferred edge.
    pub(crate) why: &'static str,
}

impl Edge {
    pub(crate) fn new(from: u32, to: u32, kind: EdgeKind, why: &'static str) -> Self {
        Self {
            from,
            to,
            kind,
            group: 0,
            all: true,
            inferred: false,
            why,
        }
    }

    pub(crate) fn inferred(from: u32, to: u32, why: &'static str) -> Self {
        Self {
            inferred: true,
            ..Self::new(from, to, EdgeKind::Require, why)
        }
    }
}

/// Nodes and edges, traversable in both directions.
#[derive(Default)]
pub(crate) struct Graph {
    /// Sorted by `to`.
    edges: Vec<Edge>,
    incoming: Vec<u32>,
    /// Positions in `edges`, sorted by `from`.
    by_start: Vec<u32>,
    outgoing: Vec<u32>,
    /// Longest path from the node to an end, in steps.
    pub(crate) height: Vec<u32>,
    /// A topological order.
    pub(crate) topological: Vec<u32>,
}

impl Graph {
    pub(crate) fn new(nodes: usize, mut edges: Vec<Edge>) -> Self {
        edges.sort_by_key(|edge| (edge.to, edge.from));
        let incoming = offsets(nodes, edges.iter().map(|edge| edge.to));
        let mut by_start: Vec<u32> = (0..edges.len() as u32).collect();
        by_start.sort_by_key(|position| edges[*position as usize].from);
        let starts = by_start
            .iter()
            .map(|position| edges[*position as usize].from);
        let outgoing = offsets(nodes, starts);
        let mut graph = Self {
            edges,
            incoming,
            by_start,
            outgoing,
            height: Vec::new(),
            topological: Vec::new(),
        };
        graph.topological = graph.sorted_anyhow();
        graph
    }

    pub(crate) fn nodes(&self) -> usize {
        self.incoming.len().saturating_sub(1)
    }

    pub(crate) fn into_edges(self) -> Vec<Edge> {
        self.edges
    }

    pub(crate) fn incoming(&self, node: u32) -> &[Edge] {
        let node = node as usize;
        &self.edges[self.incoming[node] as usize..self.incoming[node + 1] as usize]
    }

    pub(crate) fn outgoing(&self, node: u32) -> impl Iterator<Item = &Edge> {
        let node = node as usize;
        self.by_start[self.outgoing[node] as usize..self.outgoing[node + 1] as usize]
            .iter()
            .map(|position| &self.edges[*position as usize])
    }

    pub(crate) fn waits_for(&self, node: u32) -> u32 {
        let node = node as usize;
        self.incoming[node + 1] - self.incoming[node]
    }

    /// Returns an order by Kahn's algorithm. It is shorter than the number of nodes
    /// when there is a cycle.
    fn sorted_anyhow(&self) -> Vec<u32> {
        let mut waiting: Vec<u32> = (0..self.nodes() as u32)
            .map(|node| self.waits_for(node))
            .collect();
        let mut order: Vec<u32> = (0..self.nodes() as u32)
            .filter(|node| waiting[*node as usize] == 0)
            .collect();
        let mut next = 0;
        while let Some(node) = order.get(next).copied() {
            next += 1;
            for edge in self.outgoing(node) {
                let left = &mut waiting[edge.to as usize];
                *left -= 1;
                if *left == 0 {
                    order.push(edge.to);
                }
            }
        }
        order
    }

    /// Like [`Graph::sorted_anyhow`], with a preference. The result is shorter than the
    /// number of nodes when there is a cycle.
    fn sorted(&self, preference: impl Fn(u32) -> i64) -> Vec<u32> {
        use std::cmp::Reverse;
        if self.edges.is_empty() {
            let mut order: Vec<u32> = (0..self.nodes() as u32).collect();
            order.sort_by_key(|node| preference(*node));
            return order;
        }
        let mut waiting: Vec<u32> = (0..self.nodes() as u32)
            .map(|node| self.waits_for(node))
            .collect();
        let mut ready: std::collections::BinaryHeap<_> = (0..self.nodes() as u32)
            .filter(|node| waiting[*node as usize] == 0)
            .map(|node| Reverse((preference(node), node)))
            .collect();
        let mut order = Vec::with_capacity(self.nodes());
        while let Some(Reverse((_, node))) = ready.pop() {
            order.push(node);
            for edge in self.outgoing(node) {
                let left = &mut waiting[edge.to as usize];
                *left -= 1;
                if *left == 0 {
                    ready.push(Reverse((preference(edge.to), edge.to)));
                }
            }
        }
        order
    }

    /// Returns the nodes that wait for each other, or wait for such nodes.
    pub(crate) fn stuck(&self) -> Vec<bool> {
        let mut stuck = vec![true; self.nodes()];
        for node in &self.topological {
            stuck[*node as usize] = false;
        }
        stuck
    }

    /// Computes priorities, once the graph has no cycle. `order` is the file order of
    /// the steps. Containers come as early as they can.
    pub(crate) fn rank(&mut self, order: &[i64]) {
        self.topological =
            self.sorted(|node| order.get(node as usize).copied().unwrap_or(i64::MIN));
        let mut height = vec![0_u32; self.nodes()];
        for node in self.topological.iter().rev() {
            let weight = u32::from((*node as usize) < order.len());
            let below = self
                .outgoing(*node)
                .map(|edge| height[edge.to as usize])
                .max();
            height[*node as usize] = weight + below.unwrap_or(0);
        }
        self.height = height;
    }
}

/// Returns the start of each node's range in a list that is sorted by node.
fn offsets(nodes: usize, sorted: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut counts = vec![0_u32; nodes + 1];
    for node in sorted {
        counts[node as usize + 1] += 1;
    }
    for index in 1..counts.len() {
        counts[index] += counts[index - 1];
    }
    counts
}
