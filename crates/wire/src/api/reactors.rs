//! Reactors: rules that fire a trigger, or start an ordered run, when something happens.

use std::collections::BTreeMap;

use bunraku_model::{EnvironmentName, NodeName, TriggerName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::ordered_runs::{OrderedRunSubject, RunOptions};
use super::triggers::TriggerLimits;

/// The kind of an event. Its other fields are in [`ReactorEvent::fields`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReactorEventKind {
    /// A resource was processed in a run: `type`, `title`, `status`, `message`, `corrective`.
    Resource,
    /// A run has ended: `ending`, `changed`, `failed`, `method`.
    Run,
    /// A node's connection ended: `reason`.
    NodeLost,
    /// A fact changed: `fact`, `before`, `after`.
    FactChanged,
    /// JSON was posted to the environment's hook: `hook`, `body`.
    Webhook,
    /// Prometheus Alertmanager posted an alert to the hook: `hook`, `alert`, `repeated`.
    Alert,
    /// A node joined: its first certificate was signed.
    NodeJoined,
    /// An ordered run ended: `run`, `outcome`, `by`, `reason`, `nodes`, `failed`, `changed`.
    RunFinished,
    /// A release was created: `release`, `kind`, `by`, `reason`, `nodes`, `changed`, `code_id`.
    ReleaseMade,
}

impl ReactorEventKind {
    pub const ALL: [(&'static str, Self); 9] = [
        ("resource", Self::Resource),
        ("run", Self::Run),
        ("node_lost", Self::NodeLost),
        ("fact_changed", Self::FactChanged),
        ("webhook", Self::Webhook),
        ("alert", Self::Alert),
        ("node_joined", Self::NodeJoined),
        ("run_finished", Self::RunFinished),
        ("release_made", Self::ReleaseMade),
    ];

    pub fn as_str(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }
}

/// An event, as rules see it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReactorEvent {
    pub event: ReactorEventKind,
    /// The node that it concerns. Hooks, ordered runs and releases have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeName>,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub fields: Map<String, Value>,
}

/// One rule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reactor {
    pub name: String,
    /// The file in the environment's code that defines it.
    pub file: String,
    pub line: u64,
    pub event: ReactorEventKind,
    /// The allowed values of each field. Text may contain `*` and `?`.
    #[schema(value_type = Object)]
    pub matches: BTreeMap<String, Vec<Value>>,
    /// For lost nodes: only after being lost for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
    #[schema(value_type = String)]
    pub trigger: TriggerName,
    /// Nodes of the environment. `${…}` is replaced by a field.
    pub hosts: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u64>,
    #[serde(default)]
    pub limits: ReactorLimits,
    /// The ordered run to start, instead of firing the trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<ReactorRun>,
    /// Labels for the runs, besides those of an alert. `${…}` is replaced by a field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// An ordered run that a rule starts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReactorRun {
    /// The site file (.yaml) or environment graph (.json) in the environment's code. `hosts` and
    /// `query` of the rule then limit the plan to these nodes. Without a site, these nodes run in
    /// no particular order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Only these applications of the site.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<String>,
    #[serde(default)]
    pub options: RunOptions,
    #[serde(default)]
    pub subject: OrderedRunSubject,
}

/// The limits of a rule that matched.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReactorLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrences: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<u64>,
    /// `true` if each node is counted separately.
    #[serde(default)]
    pub per_node: bool,
}

/// The limits have the same meaning as those of a trigger.
impl From<&ReactorLimits> for TriggerLimits {
    fn from(limits: &ReactorLimits) -> Self {
        Self {
            quiet_seconds: limits.quiet_seconds,
            interval_seconds: limits.interval_seconds,
            occurrences: limits.occurrences,
            within_seconds: limits.within_seconds,
            ..Self::default()
        }
    }
}

/// A rule and its state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReactorStatus {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    #[serde(flatten)]
    pub reactor: Reactor,
    /// The number of occurrences that its limits delay.
    pub held: u64,
    /// The last time it fired, as far as its limits record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last: Option<Timestamp>,
}

/// A request to test the rules with an event.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TestReactors {
    pub event: ReactorEvent,
    /// The environment of a hook. For other events, the node's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub environment: Option<EnvironmentName>,
}

/// The decision of one rule about an event.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReactorVerdict {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    pub name: String,
    /// The reason why it does not match. Absent if it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<String>,
    #[schema(value_type = String)]
    pub trigger: TriggerName,
    /// The hosts at which it would fire.
    #[schema(value_type = Vec<String>)]
    pub hosts: Vec<NodeName>,
    /// Hosts that the event names and that it would not use, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The ordered run that it would start instead of firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<ReactorRun>,
    /// The labels that the runs would get.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The answer to a hook's delivery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventHookReply {
    /// The number of events in the delivery.
    pub events: usize,
    /// The number of events that a rule may match. They are stored and evaluated.
    pub taken: usize,
}
