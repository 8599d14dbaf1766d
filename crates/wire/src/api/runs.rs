//! Node runs: what a node should apply, and why.

use std::collections::BTreeMap;

use bunraku_model::{
    CatalogId, EnvironmentName, FiringId, NodeName, NodeRunId, ReleaseNumber, RunId,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ordered_runs::{PlannedCatalog, PlannedWork};

/// Change the machine, or only report what would change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    Enforce,
    Noop,
}

/// A request for one node run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunRequest {
    /// The id of the report. If several requests are merged into one run, the run keeps the first
    /// id and its report names the others.
    #[schema(value_type = String)]
    pub id: NodeRunId,
    pub causes: Vec<Cause>,
    /// If absent, the node's settings and windows decide. A run never enforces a catalog that was
    /// released for noop only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<RunMode>,
    pub subject: RunSubject,
    /// Only resources with one of these tags; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The latest start. A later run is reported as expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_before: Option<Timestamp>,
    /// The time limit of the run. A longer run is ended and reported as timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// `true` if it may be merged with another pending run. Ordered runs say `false`, because each
    /// waits for its own report.
    pub coalesce: bool,
    /// `true` to report every resource. By default, resources without changes are only counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub report_unchanged: bool,
}

impl RunRequest {
    /// Creates a request for a run of the released catalog that may be merged with another.
    pub fn new(id: NodeRunId, causes: Vec<Cause>) -> Self {
        Self {
            id,
            causes,
            mode: None,
            subject: RunSubject::Released,
            tags: Vec::new(),
            start_before: None,
            timeout_seconds: None,
            coalesce: true,
            report_unchanged: false,
        }
    }
}

/// What a run applies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "carry_out", rename_all = "snake_case")]
pub enum RunSubject {
    /// The catalog that is released when the run starts.
    Released,
    /// This released catalog only.
    Catalog {
        #[schema(value_type = u64)]
        release: ReleaseNumber,
        #[schema(value_type = String)]
        catalog: CatalogId,
        /// The catalog as an ordered run planned it. The node fetches exactly this one, even if
        /// its target is another one by now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        planned: Option<Box<PlannedCatalog>>,
    },
    /// The node's configured `run_method`: a command, or the Puppet agent on the node.
    Configured {
        /// Puppet's environment for this run. By default, the node's settings name it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        environment: Option<EnvironmentName>,
        /// The work that an ordered run planned. The node refuses to do anything else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        planned: Option<Box<PlannedWork>>,
    },
}

impl RunSubject {
    /// Returns `true` if an ordered run planned the work.
    pub fn is_planned(&self) -> bool {
        match self {
            Self::Released => false,
            Self::Catalog { planned, .. } => planned.is_some(),
            Self::Configured { planned, .. } => planned.is_some(),
        }
    }

    /// The node's configured run method, without a plan.
    pub fn configured() -> Self {
        Self::Configured {
            environment: None,
            planned: None,
        }
    }
}

/// The cause of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// The node's schedule.
    Schedule,
    /// A new release reached the node.
    Release {
        #[schema(value_type = u64)]
        release: ReleaseNumber,
    },
    Operator {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An ordered run over several nodes.
    Run {
        #[schema(value_type = String)]
        run: RunId,
    },
    Trigger(TriggerCause),
}

/// A trigger, with its chain of causes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TriggerCause {
    pub name: String,
    /// The remaining hops. At zero, nothing is fired.
    pub ttl: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The chain from the first cause to this one.
    pub chain: Vec<TriggerHop>,
    /// The id of the firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub firing: Option<FiringId>,
    /// The number of further firings that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// Labels of the alert or call that it began with, for the runs that it starts. They do not
    /// pass to what these runs trigger.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// If not empty, the cause concerns only these of the hosts that the firing starts runs on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub hosts: Vec<NodeName>,
}

impl TriggerCause {
    /// Creates the first cause of a chain.
    pub fn new(name: &str, ttl: u32) -> Self {
        Self {
            name: name.to_owned(),
            ttl,
            reason: None,
            chain: Vec::new(),
            firing: None,
            more: 0,
            labels: BTreeMap::new(),
            hosts: Vec::new(),
        }
    }

    /// Returns whether the cause concerns a host of its firing.
    pub fn concerns(&self, host: &NodeName) -> bool {
        self.hosts.is_empty() || self.hosts.contains(host)
    }
}

/// One link of a chain of causes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TriggerHop {
    pub trigger: String,
    /// The node that fired, or `None` for an operator or a hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeName>,
    /// `true` if the run that fired it had changed something.
    pub changed: bool,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// A node's run queue, as reported by the node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct QueueReport {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<QueueEntry>,
    /// In the order in which they will start.
    #[serde(default)]
    pub pending: Vec<QueueEntry>,
    /// The number of further runs that are not listed.
    #[serde(default)]
    pub more_pending: u64,
    /// The ordered run that holds the node. Other runs wait until it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub held_by: Option<RunId>,
}

/// One run in a node's queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueueEntry {
    #[schema(value_type = String)]
    pub run: NodeRunId,
    pub subject: RunSubject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<RunMode>,
    /// The causes, as far as they are listed.
    pub causes: Vec<Cause>,
    #[serde(default)]
    pub more_causes: u64,
    /// The time of the first request.
    #[schema(value_type = String, format = DateTime)]
    pub queued: Timestamp,
    /// The time when it started, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started: Option<Timestamp>,
}

/// A node's run queue, as known to a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeQueue {
    #[serde(flatten)]
    pub queue: QueueReport,
    /// The time when the node reported it.
    #[schema(value_type = String, format = DateTime)]
    pub received: Timestamp,
    /// The number of commands that wait on the server for the node.
    pub waiting_commands: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
