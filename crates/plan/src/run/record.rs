//! A run as it is asked for, kept and told.

use bunraku_model::{ReleaseNumber, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::event::Entry;
use super::options::RunOptions;
use super::status::{RunOutcome, Tally};
use crate::plan::{Plan, PlanId, StepIndex};

/// What each node carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "carry_out", rename_all = "snake_case")]
pub enum Subject {
    /// The node's released catalog.
    #[default]
    Released,
    /// The node's catalog of this release.
    Release { release: ReleaseNumber },
    /// What the node's own settings name: a command, or the Puppet agent.
    Configured,
}

/// A run that somebody asks for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    pub plan: Plan,
    #[serde(default)]
    pub options: RunOptions,
    #[serde(default)]
    pub subject: Subject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where the plan came from, for those who plan it again. Opaque to servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<serde_json::Value>,
    /// The run whose failed and skipped steps this one does. What succeeded
    /// there is not done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<RunId>,
}

/// A run as it is kept, without its plan and log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    pub id: RunId,
    pub plan: PlanId,
    pub environment: String,
    pub steps: usize,
    pub nodes: usize,
    pub options: RunOptions,
    pub subject: Subject,
    pub by: String,
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<RunId>,
    /// Steps that succeeded in the run that this one resumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<StepIndex>,
}

/// How a run went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunEnd {
    pub outcome: RunOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    pub ended: Timestamp,
    pub tally: Tally,
}

/// One line of the list of runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunSummary {
    #[serde(flatten)]
    pub record: RunRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
}

/// Everything about a run. Whoever has it can compute where the run stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunDetail {
    pub record: RunRecord,
    pub plan: Plan,
    #[serde(flatten)]
    pub log: RunLog,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
}

/// A part of a run's log.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RunLog {
    pub entries: Vec<Entry>,
    /// Pass it to go on after these.
    pub next: u64,
}
