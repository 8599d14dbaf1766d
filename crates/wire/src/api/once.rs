//! Once tasks, which run once per fleet: definitions, claims and outcomes.

use std::collections::BTreeMap;

use bunraku_model::{AppName, ClaimId, NodeMatcher, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A request to define a task: the application's JSON, as the deploy host writes it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DefineOnce {
    #[schema(value_type = Object)]
    pub definition: Map<String, Value>,
}

/// One host's part of a definition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContributeFragment {
    #[schema(value_type = Object)]
    pub fragment: Map<String, Value>,
}

/// A request to check whether `init` would be accepted now.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StatOnce {
    /// Check with this definition instead. It is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub definition: Option<Map<String, Value>>,
    /// `true` to check as if a failed attempt may be repeated.
    #[serde(default)]
    pub retry: bool,
}

/// The state of a task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum OnceStatus {
    /// An `init` would be accepted now.
    Ready,
    /// The task is done.
    Done { attempt: OnceAttempt },
    /// An attempt is running.
    Busy { attempt: OnceAttempt },
    /// The task is not ready.
    NotReady {
        missing: Vec<String>,
        /// The failed attempt, if it is the only obstacle.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<OnceAttempt>,
    },
}

/// One attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OnceAttempt {
    /// A fencing token. It increases with every claim, and older tokens are refused.
    pub token: u64,
    /// Chosen by the claimant, so that a claim can be repeated if the reply was lost.
    #[schema(value_type = String)]
    pub claim: ClaimId,
    /// The name in the claimant's certificate.
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    pub outcome: AttemptOutcome,
}

/// The outcome of an attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum AttemptOutcome {
    Running,
    Done {
        #[schema(value_type = String, format = DateTime)]
        ended: Timestamp,
    },
    Failed {
        #[schema(value_type = String, format = DateTime)]
        ended: Timestamp,
        exit_code: u8,
    },
    /// Its lease expired: the claimant died or lost its connection.
    Abandoned,
}

/// A request to claim a task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClaimOnce {
    #[schema(value_type = String)]
    pub claim: ClaimId,
    /// The claim expires after this time without a renewal.
    pub lease_seconds: u64,
    /// `true` to repeat a failed attempt regardless of the definition.
    #[serde(default)]
    pub retry: bool,
}

/// The answer to a claim.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "claim", rename_all = "snake_case")]
pub enum ClaimReply {
    Granted {
        attempt: OnceAttempt,
        /// The merged definition and fragments: the command's standard input.
        #[schema(value_type = Object)]
        document: Map<String, Value>,
        work: OnceAction,
    },
    /// Refused, with the reason.
    Refused { standing: OnceStatus },
}

/// The work of a task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnceAction {
    /// A program with its arguments.
    Command(Vec<String>),
    /// A script for `/bin/sh -c`.
    Shell(String),
    /// A state file to apply.
    States(String),
}

/// A renewal of a claim, with the end of its log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeepClaim {
    /// Absent if nothing was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// A request to finish an attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FinishClaim {
    pub exit_code: u8,
    pub log: String,
}

/// A request to reset a task, so that it can run again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ResetOnce {
    pub reason: String,
}

/// The nodes that may take part in a task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct OncePermissions {
    /// The nodes that may define it and run it. Operators always may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub init_on: Vec<NodeMatcher>,
    /// The nodes that may contribute a fragment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub contributors: Vec<NodeMatcher>,
}

/// A request to let nodes take part in a task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PermitOnce {
    #[serde(flatten)]
    pub permissions: OncePermissions,
    /// `true` to remove the permissions that this request does not contain.
    #[serde(default)]
    pub replace: bool,
}

/// A task in the list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OnceSummary {
    #[schema(value_type = String)]
    pub app: AppName,
    #[serde(flatten)]
    pub standing: OnceStatus,
    /// The number of attempts since the last reset.
    pub attempts: u64,
    /// The number of hosts that have contributed.
    pub fragments: usize,
}

/// All details of one task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OnceReport {
    #[serde(flatten)]
    pub summary: OnceSummary,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub definition: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defined_by: Option<String>,
    /// What operators permit nodes, besides what the definition permits.
    #[serde(default)]
    pub permissions: OncePermissions,
    #[schema(value_type = Object)]
    pub parts: BTreeMap<NodeName, Value>,
    /// The events, newest last.
    pub history: Vec<OnceEvent>,
    /// The end of the newest attempt's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// An event in the history of a task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum OnceEvent {
    Attempt(OnceAttempt),
    Reset {
        by: String,
        reason: String,
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
    },
}
