//! Node runs: what a node is asked to carry out, and why.

use bunraku_model::{
    CatalogId, EnvironmentName, FiringId, NodeName, NodeRunId, ReleaseNumber, RunId,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Change the machine, or only say what would change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    Enforce,
    Noop,
}

/// One node run, as it is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunRequest {
    /// The report carries it. Of requests that were folded into one run, the
    /// run keeps the first id and its report names the others.
    #[schema(value_type = String)]
    pub id: NodeRunId,
    pub causes: Vec<Cause>,
    /// Without one, the node's own settings and windows decide. A run never
    /// enforces what was delivered for noop only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<RunMode>,
    pub subject: RunSubject,
    /// Only resources with one of these tags; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Not started after this: reported as expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_before: Option<Timestamp>,
    /// Ended after this many seconds of work: reported as timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// May be folded into another run that waits: one run then serves both.
    /// Orchestrated runs say no, as each waits for its own report.
    pub coalesce: bool,
}

impl RunRequest {
    /// A run of the released catalog that may be folded into another.
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
        }
    }
}

/// What is carried out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "carry_out", rename_all = "snake_case")]
pub enum RunSubject {
    /// The node's released catalog, whichever it is when the run starts.
    Released,
    /// This released catalog and no other.
    Catalog {
        #[schema(value_type = u64)]
        release: ReleaseNumber,
        #[schema(value_type = String)]
        catalog: CatalogId,
    },
    /// What the node's own settings name (`run_method`): a command, or the
    /// Puppet agent that is already there.
    Configured {
        /// Puppet's environment for this run; the node's settings name it otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        environment: Option<EnvironmentName>,
    },
}

/// Why a run happens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// Its time had come.
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
    /// A part of an ordered run over many nodes.
    Run {
        #[schema(value_type = String)]
        run: RunId,
    },
    Trigger(TriggerCause),
}

/// A trigger, with everything that led to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TriggerCause {
    pub name: String,
    /// Hops that are left: at zero nothing is fired any more.
    pub ttl: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// From the first cause to this one.
    pub chain: Vec<TriggerHop>,
    /// Which firing it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub firing: Option<FiringId>,
    /// Further firings, beyond those that are told one by one up to this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
}

impl TriggerCause {
    /// The first cause of a chain.
    pub fn new(name: &str, ttl: u32) -> Self {
        Self {
            name: name.to_owned(),
            ttl,
            reason: None,
            chain: Vec::new(),
            firing: None,
            more: 0,
        }
    }
}

/// One link of a chain of causes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TriggerHop {
    pub trigger: String,
    /// Who fired: a node, or `None` for a person or a hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeName>,
    /// Whether the run that fired it had changed anything.
    pub changed: bool,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// A node's run queue, as the node tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct QueueReport {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<QueueEntry>,
    /// In the order in which they will start.
    #[serde(default)]
    pub pending: Vec<QueueEntry>,
    /// Beyond those that are told one by one.
    #[serde(default)]
    pub more_pending: u64,
    /// The ordered run that has the node for itself: others wait for its end.
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
    /// Some of them.
    pub causes: Vec<Cause>,
    #[serde(default)]
    pub more_causes: u64,
    /// When it was asked for first.
    #[schema(value_type = String, format = DateTime)]
    pub queued: Timestamp,
    /// When it started, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started: Option<Timestamp>,
}

/// What a server knows of a node's run queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeQueue {
    #[serde(flatten)]
    pub queue: QueueReport,
    /// When the node told it.
    #[schema(value_type = String, format = DateTime)]
    pub received: Timestamp,
    /// Commands that wait on the server for the node.
    pub waiting_commands: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
