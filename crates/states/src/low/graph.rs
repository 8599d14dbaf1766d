//! The dependency graph. The edges are in the order in which Salt adds them, because its preference
//! among ready states depends on it.

use std::collections::HashMap;

use super::OrderKind;

/// The nodes are the states, then one more for each state that a `prereq` checks: the check itself,
/// which comes before the run.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) outgoing: Vec<Vec<(u32, OrderKind)>>,
    pub(super) waits_for: Vec<u32>,
    known: HashMap<(u32, u32), Vec<OrderKind>>,
    /// The check of each state that has one.
    pub(super) looks: HashMap<u32, u32>,
    /// The state of each node.
    pub(super) state_of: Vec<u32>,
}

impl Graph {
    pub(super) fn new(states: usize) -> Self {
        Self {
            outgoing: vec![Vec::new(); states],
            waits_for: vec![0; states],
            known: HashMap::new(),
            looks: HashMap::new(),
            state_of: (0..states as u32).collect(),
        }
    }

    /// Adds an edge: `to` waits for `from`.
    pub(super) fn edge(&mut self, from: u32, to: u32, kind: OrderKind) {
        let kinds = self.known.entry((from, to)).or_default();
        if kinds.contains(&kind) {
            return;
        }
        kinds.push(kind);
        // Edges to one target stay together, as in Salt's map of maps.
        let list = &mut self.outgoing[from as usize];
        match list.iter().rposition(|(target, _)| *target == to) {
            Some(at) if kinds.len() > 1 => list.insert(at + 1, (to, kind)),
            _ => list.push((to, kind)),
        }
        self.waits_for[to as usize] += 1;
    }

    /// Returns the node of a state's check.
    pub(super) fn check_node(&mut self, state: u32) -> u32 {
        if let Some(look) = self.looks.get(&state) {
            return *look;
        }
        let look = self.outgoing.len() as u32;
        self.outgoing.push(Vec::new());
        self.waits_for.push(0);
        self.state_of.push(state);
        self.looks.insert(state, look);
        look
    }
}
