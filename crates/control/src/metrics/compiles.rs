//! Compile metrics: queue depth, waiting time and outcomes.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PriorityLabels {
    priority: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// The compile service's metrics.
pub struct CompileMetrics {
    queued: Family<PriorityLabels, Gauge>,
    oldest: Family<PriorityLabels, Gauge>,
    running: Gauge,
    outcomes: Family<OutcomeLabels, Counter>,
    duration: Histogram,
}

impl Default for CompileMetrics {
    fn default() -> Self {
        Self {
            queued: Family::default(),
            oldest: Family::default(),
            running: Gauge::default(),
            outcomes: Family::default(),
            duration: Histogram::new(exponential_buckets(0.001, 2.0, 18)),
        }
    }
}

const PRIORITIES: [(u8, &str); 3] = [(0, "person"), (1, "code"), (2, "facts")];

impl CompileMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "compile_queue_nodes",
            "Nodes in the compile queue, including those being compiled",
            self.queued.clone(),
        );
        registry.register(
            "compile_queue_oldest_seconds",
            "Age of the oldest entry in the compile queue",
            self.oldest.clone(),
        );
        registry.register(
            "compiles_running",
            "Nodes that this server is compiling",
            self.running.clone(),
        );
        registry.register(
            "compiles",
            "Finished compiles on this server, by outcome",
            self.outcomes.clone(),
        );
        registry.register(
            "compile_duration_seconds",
            "Duration of compiles, from claim to stored outcome",
            self.duration.clone(),
        );
    }

    /// Sets the queue metrics. `depth`: per priority, the count, and the age of
    /// the oldest in seconds.
    pub fn queue(&self, depth: &std::collections::BTreeMap<u8, (usize, i64)>) {
        for (priority, name) in PRIORITIES {
            let (count, age) = depth.get(&priority).copied().unwrap_or((0, 0));
            let labels = PriorityLabels { priority: name };
            self.queued.get_or_create(&labels).set(count as i64);
            self.oldest.get_or_create(&labels).set(age.max(0));
        }
    }

    pub fn running(&self, count: usize) {
        self.running.set(count as i64);
    }

    pub fn ended(&self, outcome: &'static str, seconds: f64) {
        self.outcomes
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
        self.duration.observe(seconds);
    }
}
