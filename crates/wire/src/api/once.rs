//! Things that are done once per fleet: their definitions, claims and outcomes.

use std::collections::BTreeMap;

use bunraku_model::{AppName, ClaimId, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Put a definition in place: the application's JSON, as the deploy host writes it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DefineOnce {
    #[schema(value_type = Object)]
    pub definition: Map<String, Value>,
}

/// One host's own part of a definition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContributeFragment {
    #[schema(value_type = Object)]
    pub fragment: Map<String, Value>,
}

/// Would `init` be accepted now?
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StatOnce {
    /// Judge as if this were the definition. Nothing is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub definition: Option<Map<String, Value>>,
    /// As if a failed attempt might be repeated.
    #[serde(default)]
    pub retry: bool,
}

/// Where a thing stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum OnceStanding {
    /// An `init` would be accepted now.
    Ready,
    /// It was done.
    Done { attempt: Attempt },
    /// Someone does it now.
    Busy { attempt: Attempt },
    /// Something is missing.
    NotReady {
        missing: Vec<String>,
        /// The failed attempt, if nothing else stands in the way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<Attempt>,
    },
}

/// One try at doing it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Rises with every claim; an older one is refused.
    pub token: u64,
    /// Drawn by the claimant, so that a claim whose reply was lost can be asked for again.
    #[schema(value_type = String)]
    pub claim: ClaimId,
    /// The name in the claimant's certificate.
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    pub outcome: AttemptOutcome,
}

/// How an attempt ended, if it did.
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
    /// Its lease ended: the claimant died, or could not be reached.
    Abandoned,
}

/// Claim a thing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClaimOnce {
    #[schema(value_type = String)]
    pub claim: ClaimId,
    /// The claim is gone after so long without a sign of life.
    pub lease_seconds: u64,
    /// Repeat a failed attempt whatever the definition says.
    #[serde(default)]
    pub retry: bool,
}

/// What became of a claim.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "claim", rename_all = "snake_case")]
pub enum ClaimReply {
    Granted {
        attempt: Attempt,
        /// Definition and fragments together: what the command gets on its standard input.
        #[schema(value_type = Object)]
        document: Map<String, Value>,
        work: Work,
    },
    /// Not now, and why.
    Refused { standing: OnceStanding },
}

/// What doing it means.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A program with its arguments.
    Command(Vec<String>),
    /// A text for `/bin/sh -c`.
    Shell(String),
    /// A state file to apply.
    States(String),
}

/// A sign of life from the claimant, with the end of its log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeepClaim {
    /// Left out when nothing was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// The end of an attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FinishClaim {
    pub exit_code: u8,
    pub log: String,
}

/// Let a thing be done again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ResetOnce {
    pub reason: String,
}

/// One line of the list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OnceSummary {
    #[schema(value_type = String)]
    pub app: AppName,
    #[serde(flatten)]
    pub standing: OnceStanding,
    /// Attempts since the last reset.
    pub attempts: u64,
    /// Hosts that have contributed.
    pub fragments: usize,
}

/// Everything about one thing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OnceReport {
    #[serde(flatten)]
    pub summary: OnceSummary,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub definition: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defined_by: Option<String>,
    #[schema(value_type = Object)]
    pub parts: BTreeMap<NodeName, Value>,
    /// Newest last.
    pub history: Vec<OnceEvent>,
    /// The end of the newest attempt's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// What happened to a thing, for those who ask later.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum OnceEvent {
    Attempt(Attempt),
    Reset {
        by: String,
        reason: String,
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
    },
}
