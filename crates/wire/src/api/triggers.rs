//! Triggers start runs on other nodes and carry the chain of causes.

use bunraku_model::{FiringId, NodeMatcher, NodeName, RunId, TriggerName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ordered_runs::RunOutcome;
use super::{Cause, TriggerHop};

/// The default number of hops in a chain of triggers.
pub const DEFAULT_TTL: u32 = 8;

/// How often a node may fire a trigger per hour, if its definition does not say.
pub const DEFAULT_BUDGET: u64 = 30;

/// A request to fire a trigger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FireTrigger {
    /// Chosen by the client, so that a repeated request counts once.
    #[schema(value_type = String)]
    pub id: FiringId,
    #[schema(value_type = Vec<String>)]
    #[serde(default)]
    pub hosts: Vec<NodeName>,
    /// Also fire at all nodes that match this query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The remaining hops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long the firing waits for a disconnected node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u64>,
    /// The causes of the run that fires; their chains continue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// `true` if that run changed something.
    #[serde(default)]
    pub changed: bool,
}

impl FireTrigger {
    /// Creates a firing at these hosts that no run caused.
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

/// The result of a firing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum FireReply {
    /// The trigger was fired at these hosts. Delivery is retried until the deadline.
    ///
    /// A node gets the hosts that it named, whether they exist or not.
    Fired {
        #[schema(value_type = Vec<String>)]
        hosts: Vec<NodeName>,
        /// Names without a node.
        #[schema(value_type = Vec<String>)]
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unknown: Vec<NodeName>,
    },
    /// The trigger's limits delay it.
    ///
    /// A node gets neither the number nor the time, because other nodes may have fired it too.
    Held {
        #[serde(default)]
        occurrences: u64,
        /// When it will be sent. Absent while more occurrences are needed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        until: Option<Timestamp>,
    },
    /// Loop protection stopped it.
    Stopped {
        why: StopReason,
        chain: Vec<TriggerHop>,
    },
}

/// The reason why loop protection ended a chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The chain used up its hops.
    HopLimit,
    /// The same node fired the same trigger before, and nothing changed in between.
    Repeated,
    /// The node has fired the trigger too often.
    Budget,
}

impl StopReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HopLimit => "no hops are left",
            Self::Repeated => "the same node fired it earlier, and nothing has changed since",
            Self::Budget => "the node has used up its firings for this hour",
        }
    }
}

/// The definition of a trigger: its limits, permissions and targets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TriggerLimits {
    /// Wait until the trigger has not been fired for this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_seconds: Option<u64>,
    /// Send at most once per this period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<u64>,
    /// Send only after this many occurrences …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occurrences: Option<u64>,
    /// … within this period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<u64>,
    /// The nodes that may fire it; empty means none. Operators always may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub fired_by: Vec<NodeMatcher>,
    /// The hosts at which nodes may fire it, besides those of `query`; empty means none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub hosts: Vec<NodeMatcher>,
    /// How often each node may fire it per hour. Default: [`DEFAULT_BUDGET`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// The default targets, if a firing names no hosts: all nodes that match this query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// A request to let nodes fire a trigger.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PermitTrigger {
    /// These nodes may fire it.
    #[schema(value_type = Vec<String>)]
    pub fired_by: Vec<NodeMatcher>,
    /// Nodes may fire it at these hosts.
    #[schema(value_type = Vec<String>)]
    pub hosts: Vec<NodeMatcher>,
    /// `true` to remove the permissions that this request does not contain.
    pub replace: bool,
}

/// A trigger that is defined or delayed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TriggerSummary {
    #[schema(value_type = String)]
    pub name: TriggerName,
    pub limits: TriggerLimits,
    /// The number of delayed occurrences.
    pub held: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// The time when it was last sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last: Option<Timestamp>,
}

/// An entry in the history of triggers.
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
    /// It was sent to these hosts.
    Fired {
        #[schema(value_type = String)]
        id: FiringId,
        by: String,
        /// The number of hosts. `hosts` lists the first ones.
        count: usize,
        #[schema(value_type = Vec<String>)]
        hosts: Vec<NodeName>,
        #[schema(value_type = Vec<String>)]
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unknown: Vec<NodeName>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The chain of its first cause.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        chain: Vec<TriggerHop>,
    },
    Stopped {
        by: String,
        why: StopReason,
        chain: Vec<TriggerHop>,
    },
    /// The node did not connect before the deadline.
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
    /// A reactor matched, but its event names no known host, so nothing was started.
    NoHosts {
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The hosts that the event names, and why each of them was not used.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tried: Vec<String>,
    },
    /// A reactor started an ordered run.
    RunStarted {
        by: String,
        #[schema(value_type = String)]
        run: RunId,
        nodes: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The ordered run of a reactor was refused. Nothing ran.
    RunRefused {
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        message: String,
    },
    /// The ordered run of a reactor has ended.
    RunEnded {
        by: String,
        #[schema(value_type = String)]
        run: RunId,
        outcome: RunOutcome,
        /// The number of nodes that did not succeed.
        failed: usize,
    },
}

impl TriggerNews {
    /// Returns the reactor, operator, node or run that caused it, as far as the entry names it.
    pub fn by(&self) -> Option<&str> {
        match self {
            Self::Fired { by, .. }
            | Self::Stopped { by, .. }
            | Self::NoHosts { by, .. }
            | Self::RunStarted { by, .. }
            | Self::RunRefused { by, .. }
            | Self::RunEnded { by, .. } => Some(by),
            Self::Expired { .. } | Self::Refused { .. } => None,
        }
    }
}
