//! Metrics of all nodes: how many have each status, how their last runs ended, and how many drifted.
//!
//! Every server counts all nodes, whichever server they are connected to.

use std::sync::atomic::{AtomicUsize, Ordering};

use bunraku_wire::api::NodeSummary;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// What is counted of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeCondition {
    status: &'static str,
    /// The ending of its last run.
    outcome: &'static str,
    has_drifted: bool,
}

impl NodeCondition {
    pub fn of(node: &NodeSummary) -> Self {
        let last = node.last_run.as_ref();
        Self {
            status: node.word.as_str(),
            outcome: last.map_or("none", |last| last.ending.as_str()),
            has_drifted: node.has_drifted(),
        }
    }
}

/// The gauges of all nodes.
#[derive(Default)]
pub struct FleetMetrics {
    by_status: Family<StatusLabels, Gauge>,
    by_outcome: Family<OutcomeLabels, Gauge>,
    drifted: Gauge,
    nodes: AtomicUsize,
    capacity: Gauge,
}

impl FleetMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "nodes",
            "Nodes by status: new, idle, running, disabled or lost",
            self.by_status.clone(),
        );
        registry.register(
            "nodes_last_run",
            "Nodes by the ending of their last run; none without a run",
            self.by_outcome.clone(),
        );
        registry.register(
            "nodes_with_drift",
            "Nodes whose last run found changes that someone else had made",
            self.drifted.clone(),
        );
        registry.register(
            "nodes_capacity",
            "Nodes that the cluster carries with its present engines; 0 without a known limit",
            self.capacity.clone(),
        );
    }

    /// Sets the number of nodes that the cluster carries; 0 without a known limit.
    pub fn set_capacity(&self, nodes: usize) {
        self.capacity.set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    /// Returns the number of nodes, if any are counted yet.
    pub fn nodes(&self) -> Option<usize> {
        let nodes = self.nodes.load(Ordering::Relaxed);
        (nodes > 0).then_some(nodes)
    }

    /// Counts a node again after it changed, appeared or was removed.
    pub fn change(&self, before: Option<NodeCondition>, after: Option<NodeCondition>) {
        if before == after {
            return;
        }
        match (before, after) {
            (None, Some(_)) => self.nodes.fetch_add(1, Ordering::Relaxed),
            (Some(_), None) => self.nodes.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        for (condition, step) in [(before, -1), (after, 1)] {
            let Some(condition) = condition else {
                continue;
            };
            let status = condition.status;
            self.by_status
                .get_or_create(&StatusLabels { status })
                .inc_by(step);
            let outcome = condition.outcome;
            self.by_outcome
                .get_or_create(&OutcomeLabels { outcome })
                .inc_by(step);
            if condition.has_drifted {
                self.drifted.inc_by(step);
            }
        }
    }
}
