//! The reasons for the position of each step.

use bunraku_model::catalog::{Place, ResourceReference};

use super::{Body, CatalogPlan, EdgeKind, Node, OrderingMode};

/// One step of the plan, in the order in which it would start.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub reference: ResourceReference,
    pub place: Place,
    /// `after File[/etc] (its directory, inferred)`.
    pub reasons: Vec<String>,
    /// The number of steps on the longest path from here to an end.
    pub path_length: u32,
}

impl CatalogPlan {
    /// Returns every step with its reasons.
    pub fn explain(&self) -> impl Iterator<Item = Explanation> {
        self.planned_order()
            .into_iter()
            .map(|step| self.explain_one(step))
    }

    /// Returns the order in which steps would start if each took the same time.
    fn planned_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (self.graph.topological.iter().copied())
            .filter(|node| matches!(self.node(*node), Node::Step(_)))
            .filter(|node| !self.is_left_out(*node))
            .collect();
        if self.mode == OrderingMode::Genius {
            // Longest path first among those on the same level.
            let mut level = vec![0_u32; self.graph.nodes()];
            for node in &self.graph.topological {
                let above = self
                    .graph
                    .incoming(*node)
                    .iter()
                    .map(|edge| level[edge.from as usize])
                    .max();
                let own = u32::from(matches!(self.node(*node), Node::Step(_)));
                level[*node as usize] = above.unwrap_or(0) + own;
            }
            order.sort_by_key(|node| {
                (
                    level[*node as usize],
                    u32::MAX - self.graph.height[*node as usize],
                )
            });
        }
        order
    }

    fn explain_one(&self, node: u32) -> Explanation {
        let step = &self.steps[node as usize];
        let mut reasons: Vec<String> = (self.graph.incoming(node).iter())
            .filter(|edge| edge.kind != EdgeKind::Contain || self.graph.waits_for(edge.from) > 0)
            .map(|edge| {
                let other = self.reference_of(edge.from);
                match (edge.kind, edge.inferred) {
                    (EdgeKind::Contain, _) => format!("inside {other}"),
                    (_, true) => format!("after {other} ({}, inferred)", edge.why),
                    (_, false) => format!("after {other} ({})", edge.why),
                }
            })
            .collect();
        if let Body::Ready(instance) = &step.body
            && self.mode == OrderingMode::Genius
            && let Some(key) = instance.batch_key()
        {
            reasons.push(format!("in one transaction with others ({key})"));
        }
        for edge in self.gave_way.iter().filter(|edge| edge.to == node) {
            let other = self.reference_of(edge.from);
            reasons.push(format!(
                "not after {other} ({}): the declared order takes precedence",
                edge.why
            ));
        }
        Explanation {
            reference: (*step.reference).clone(),
            place: (*step.place).clone(),
            reasons,
            path_length: self.graph.height[node as usize],
        }
    }
}
