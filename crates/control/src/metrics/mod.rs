//! Metrics for Prometheus.

mod compiles;
mod fleet;
mod space;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bunraku_wire::api::cluster::{ClusterView, MemberState};
use bunraku_wire::api::triggers::StopReason;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

pub use compiles::CompileMetrics;
pub use fleet::{FleetMetrics, NodeCondition};
use space::SpaceMetrics;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ChangedLabels {
    changed: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct EndingLabels {
    ending: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReactorLabels {
    environment: String,
    reactor: String,
}

/// All metrics of a server.
pub struct Metrics {
    registry: Registry,
    pub connected_agents: Gauge,
    pub connections: Gauge,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram, fn() -> Histogram>,
    facts: Family<ChangedLabels, Counter>,
    facts_waiting: Gauge,
    commands: Counter<u64, AtomicU64>,
    refused_connections: Family<ReasonLabels, Counter>,
    triggers: Counter<u64, AtomicU64>,
    stopped_triggers: Family<ReasonLabels, Counter>,
    expired_triggers: Counter<u64, AtomicU64>,
    reactors: Family<ReactorLabels, Counter>,
    runs: Family<EndingLabels, Counter>,
    report_events: Counter<u64, AtomicU64>,
    pub compiles: std::sync::Arc<CompileMetrics>,
    pub fleet: std::sync::Arc<FleetMetrics>,
    members: Family<StateLabels, Gauge>,
    member_health: Gauge,
    datastores: Gauge,
    datastores_healthy: Gauge,
    datastore_changes: Gauge,
    pub without_majority: Gauge,
    /// The seconds for which history has not answered.
    pub history_unavailable: Gauge,
    space: SpaceMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("bunraku");
        let make: fn() -> Histogram = || Histogram::new(exponential_buckets(0.000_5, 2.0, 16));
        let metrics = Self {
            connected_agents: Gauge::default(),
            connections: Gauge::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(make),
            facts: Family::default(),
            facts_waiting: Gauge::default(),
            commands: Counter::default(),
            refused_connections: Family::default(),
            triggers: Counter::default(),
            stopped_triggers: Family::default(),
            expired_triggers: Counter::default(),
            reactors: Family::default(),
            runs: Family::default(),
            report_events: Counter::default(),
            compiles: std::sync::Arc::default(),
            fleet: std::sync::Arc::default(),
            members: Family::default(),
            member_health: Gauge::default(),
            datastores: Gauge::default(),
            datastores_healthy: Gauge::default(),
            datastore_changes: Gauge::default(),
            without_majority: Gauge::default(),
            history_unavailable: Gauge::default(),
            space: SpaceMetrics::default(),
            registry: Registry::default(),
        };
        registry.register(
            "connected_agents",
            "Agents with an open command stream on this server",
            metrics.connected_agents.clone(),
        );
        registry.register(
            "connections",
            "Open TLS connections",
            metrics.connections.clone(),
        );
        registry.register(
            "requests",
            "Requests by route and status",
            metrics.requests.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "Time to the response headers",
            metrics.durations.clone(),
        );
        registry.register(
            "facts_submitted",
            "Submitted fact sets, by whether they changed",
            metrics.facts.clone(),
        );
        registry.register(
            "facts_waiting",
            "Submitted fact sets waiting to be stored",
            metrics.facts_waiting.clone(),
        );
        registry.register(
            "commands_sent",
            "Commands queued for nodes",
            metrics.commands.clone(),
        );
        registry.register(
            "connections_refused",
            "Failed TLS handshakes",
            metrics.refused_connections.clone(),
        );
        registry.register(
            "triggers_fired",
            "Accepted firings of triggers",
            metrics.triggers.clone(),
        );
        registry.register(
            "triggers_stopped",
            "Stopped chains of triggers, by reason",
            metrics.stopped_triggers.clone(),
        );
        registry.register(
            "triggers_expired",
            "Triggers that expired because their node did not connect in time",
            metrics.expired_triggers.clone(),
        );
        registry.register(
            "reactor_matches",
            "Events that matched a reactor",
            metrics.reactors.clone(),
        );
        registry.register(
            "node_runs",
            "Finished node runs, by ending",
            metrics.runs.clone(),
        );
        registry.register(
            "report_events",
            "Stored events of node runs",
            metrics.report_events.clone(),
        );
        registry.register(
            "cluster_members",
            "Servers of the cluster, by state as seen by this server",
            metrics.members.clone(),
        );
        registry.register(
            "cluster_health_score",
            "Health score of this server: 0 if it has enough CPU time to judge others",
            metrics.member_health.clone(),
        );
        registry.register(
            "cluster_datastores",
            "Datastores",
            metrics.datastores.clone(),
        );
        registry.register(
            "cluster_datastores_healthy",
            "Datastores that answered the last check of the leader",
            metrics.datastores_healthy.clone(),
        );
        registry.register(
            "cluster_datastore_changes",
            "Datastore changes since the cluster was created",
            metrics.datastore_changes.clone(),
        );
        registry.register(
            "cluster_without_majority_seconds",
            "Seconds without a majority of the datastores; 0 with a majority",
            metrics.without_majority.clone(),
        );
        registry.register(
            "history_unavailable_seconds",
            "Seconds for which history has not answered; 0 while it does",
            metrics.history_unavailable.clone(),
        );
        metrics.compiles.register(&mut registry);
        metrics.fleet.register(&mut registry);
        metrics.space.register(&mut registry);
        Self {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    pub fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels = RequestLabels {
            method: method.to_owned(),
            route: route.to_owned(),
            status,
        };
        self.requests.get_or_create(&labels).inc();
        self.durations
            .get_or_create(&RouteLabels {
                route: route.to_owned(),
            })
            .observe(took.as_secs_f64());
    }

    pub fn facts_submitted(&self, changed: bool) {
        let changed = if changed { "true" } else { "false" };
        self.facts.get_or_create(&ChangedLabels { changed }).inc();
    }

    pub fn facts_waiting(&self, count: usize) {
        self.facts_waiting.set(count as i64);
    }

    pub fn commands_sent(&self, count: usize) {
        self.commands.inc_by(count as u64);
    }

    /// Sets the cluster metrics to this server's current view.
    pub fn cluster(&self, sight: &ClusterView) {
        let states = [
            ("alive", MemberState::Alive),
            ("suspect", MemberState::Suspect),
            ("dead", MemberState::Dead),
            ("left", MemberState::Left),
        ];
        for (state, wanted) in states {
            let members = sight.members.iter().filter(|it| it.state == wanted);
            let gauge = self.members.get_or_create(&StateLabels { state });
            gauge.set(members.count() as i64);
        }
        self.member_health.set(i64::from(sight.health_score));
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.datastores.set(count(sight.datastores));
        self.datastores_healthy.set(count(sight.datastores_healthy));
        let changes = i64::try_from(sight.changes).unwrap_or(i64::MAX);
        self.datastore_changes.set(changes);
    }

    /// Sets the metrics of the store's space to the last observation.
    pub fn store_space(&self, space: &bunraku_store::StoreSpace) {
        self.space.set(space);
    }

    pub fn run_ended(&self, ending: &'static str) {
        self.runs.get_or_create(&EndingLabels { ending }).inc();
    }

    pub fn report_events(&self, count: usize) {
        self.report_events.inc_by(count as u64);
    }

    pub fn connection_refused(&self, reason: &'static str) {
        self.refused_connections
            .get_or_create(&ReasonLabels { reason })
            .inc();
    }

    pub fn triggers_fired(&self) {
        self.triggers.inc();
    }

    pub fn trigger_stopped(&self, why: StopReason) {
        let reason = match why {
            StopReason::HopLimit => "hop_limit",
            StopReason::Repeated => "repeated",
            StopReason::Budget => "budget",
        };
        self.stopped_triggers
            .get_or_create(&ReasonLabels { reason })
            .inc();
    }

    pub fn reactor_matched(
        &self,
        environment: &bunraku_model::EnvironmentName,
        reactor: &str,
        count: usize,
    ) {
        let labels = ReactorLabels {
            environment: environment.to_string(),
            reactor: reactor.to_owned(),
        };
        let matches = self.reactors.get_or_create(&labels);
        matches.inc_by(count as u64);
    }

    pub fn trigger_expired(&self) {
        self.expired_triggers.inc();
    }

    /// Returns the text that Prometheus reads.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("a String takes everything");
        out
    }
}
