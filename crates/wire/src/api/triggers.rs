//! Triggers: cues that start runs on other nodes, with the chain of what led to them.

use bunraku_model::{FiringId, NodeName, TriggerName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Cause, TriggerHop};

/// Hops that a chain of triggers has when nobody says.
pub const DEFAULT_TTL: u32 = 8;

/// Fire a trigger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FireTrigger {
    /// Drawn by whoever fires, so that the same firing sent twice counts once.
    #[schema(value_type = String)]
    pub id: FiringId,
    #[schema(value_type = Vec<String>)]
    #[serde(default)]
    pub hosts: Vec<NodeName>,
    /// Every node that this query finds as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Hops that are left for what it leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long it may wait for a node that is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u64>,
    /// Of the run that fires: its chain is handed on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// That run changed something.
    #[serde(default)]
    pub changed: bool,
}

impl FireTrigger {
    /// A firing at these hosts that no run caused.
    pub fn new(id: FiringId, hosts: Vec<NodeName>) -> Self {
        Self {
            id,
            hosts,
            query: None,
            ttl: None,
            reason: None,
            deadline_seconds: None,
            causes: Vec::new(),
            changed: false,
        }
    }
}

/// What became of a firing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum FireReply {
    /// Every host will be told until the deadline.
    Fired {
        #[schema(value_type = Vec<String>)]
        hosts: Vec<NodeName>,
        /// Nobody by these names.
        #[schema(value_type = Vec<String>)]
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unknown: Vec<NodeName>,
    },
    /// The trigger's limits hold it back.
    Held {
        occurrences: u64,
        /// When it goes out if nothing else happens; never, while more occurrences are needed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        until: Option<Timestamp>,
    },
    /// The loop ends here.
    Stopped {
        why: StopReason,
        chain: Vec<TriggerHop>,
    },
}

/// Why a chain ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// No hops were left.
    HopLimit,
    /// The same node fired the same trigger before, and nothing changed in between.
    Repeated,
}

impl StopReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HopLimit => "no hops are left",
            Self::Repeated => "the same node fired it before, and nothing changed in between",
        }
    }
}

/// Limits of a trigger.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TriggerLimits {
    /// Wait until it was not fired for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_seconds: Option<u64>,
    /// Go out at most once in so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<u64>,
    /// Only after so many occurrences …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occurrences: Option<u64>,
    /// … within so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<u64>,
    /// Only these nodes may fire it; empty means all. Operators always may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub fired_by: Vec<NodeName>,
    /// Whom it is for when a firing names nobody: every node that this query finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// A trigger that is defined, or that waits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TriggerSummary {
    #[schema(value_type = String)]
    pub name: TriggerName,
    pub limits: TriggerLimits,
    /// Occurrences that are held back now.
    pub held: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// When it went out last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last: Option<Timestamp>,
}

/// What happened to a trigger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TriggerEvent {
    #[schema(value_type = String)]
    pub trigger: TriggerName,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    #[serde(flatten)]
    pub what: TriggerNews,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TriggerNews {
    /// It went out to these hosts.
    Fired {
        #[schema(value_type = String)]
        id: FiringId,
        by: String,
        /// How many hosts, and the first of them.
        count: usize,
        #[schema(value_type = Vec<String>)]
        hosts: Vec<NodeName>,
        #[schema(value_type = Vec<String>)]
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unknown: Vec<NodeName>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Of its first cause.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        chain: Vec<TriggerHop>,
    },
    Stopped {
        by: String,
        why: StopReason,
        chain: Vec<TriggerHop>,
    },
    /// The node was away until its time was up.
    Expired {
        #[schema(value_type = String)]
        node: NodeName,
    },
    /// The node took it, and could not queue it.
    Refused {
        #[schema(value_type = String)]
        node: NodeName,
        message: String,
    },
}
