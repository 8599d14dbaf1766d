//! Reactors: rules that fire a trigger when something happens.

use std::collections::BTreeMap;

use bunraku_model::{EnvironmentName, NodeName, TriggerName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::triggers::TriggerLimits;

/// What may happen. Its other fields are in [`Happening::fields`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HappeningKind {
    /// A resource of a run is done with: `type`, `title`, `status`, `message`, `corrective`.
    Resource,
    /// A run has ended: `ending`, `changed`, `failed`, `method`.
    Run,
    /// A node's connection ended: `reason`.
    NodeLost,
    /// A fact is not what it was: `fact`, `before`, `after`.
    FactChanged,
    /// Somebody posted JSON to the environment's hook: `hook`, `body`.
    Webhook,
    /// An alert that Prometheus' Alertmanager posted there: `hook`, `alert`.
    Alert,
}

impl HappeningKind {
    pub const ALL: [(&'static str, Self); 6] = [
        ("resource", Self::Resource),
        ("run", Self::Run),
        ("node_lost", Self::NodeLost),
        ("fact_changed", Self::FactChanged),
        ("webhook", Self::Webhook),
        ("alert", Self::Alert),
    ];

    pub fn as_str(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }
}

/// Something that happened, as rules see it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Happening {
    pub event: HappeningKind,
    /// The node that it happened to; hooks have none.
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
    /// Where in the environment's code it is written.
    pub file: String,
    pub line: u64,
    pub event: HappeningKind,
    /// What fields must be: one of these values; texts may have `*` and `?`.
    #[schema(value_type = Object)]
    pub matches: BTreeMap<String, Vec<Value>>,
    /// Of a node that is lost: only if it stays so for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
    #[schema(value_type = String)]
    pub trigger: TriggerName,
    /// Nodes of the environment; `${…}` stands for a field.
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
}

/// When a rule that matched goes on.
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
    /// Each node is counted for itself.
    #[serde(default)]
    pub per_node: bool,
}

/// They mean what a trigger's limits mean.
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

/// A rule and where it stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReactorStatus {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    #[serde(flatten)]
    pub reactor: Reactor,
    /// Occurrences that its limits hold back now.
    pub held: u64,
    /// When it went on last, as far as its limits remember.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last: Option<Timestamp>,
}

/// What would happen.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TestReactors {
    pub event: Happening,
    /// Of hooks, which belong to one; of others, the node's is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub environment: Option<EnvironmentName>,
}

/// What one rule makes of an event.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReactorVerdict {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    pub name: String,
    /// Why it does not match; nothing when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<String>,
    #[schema(value_type = String)]
    pub trigger: TriggerName,
    /// Whom it would be fired at.
    #[schema(value_type = Vec<String>)]
    pub hosts: Vec<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a hook takes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventHookReply {
    /// Events that were in it.
    pub events: usize,
    /// How many of them some rule may be about; they are stored and looked at.
    pub taken: usize,
}
