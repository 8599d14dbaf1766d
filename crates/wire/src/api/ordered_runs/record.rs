//! A run as it is asked for, kept and told.

use bunraku_model::{EnvironmentName, NodeName, ReleaseNumber, RunId, TriggerName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::event::Entry;
use super::options::RunOptions;
use super::outcome::{RunOutcome, Tally};
use super::plan::{Plan, PlanId, StepIndex};

/// What each node carries out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(tag = "carry_out", rename_all = "snake_case")]
pub enum Subject {
    /// The node's released catalog.
    #[default]
    Released,
    /// The node's catalog of this release.
    Release {
        #[schema(value_type = u64)]
        release: ReleaseNumber,
    },
    /// What the node's own settings name: a command, or the Puppet agent.
    Configured {
        /// Puppet's environment for this run; the node's settings name it otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        environment: Option<EnvironmentName>,
    },
}

/// When a run may begin. Until its time has come it holds nobody up; then it
/// gets its place behind the runs that were due before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Due {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub not_before: Option<Timestamp>,
    /// A run that has not begun by then expires: no server was up, or other
    /// runs had its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_before: Option<Timestamp>,
}

impl Due {
    fn is_now(&self) -> bool {
        *self == Self::default()
    }
}

/// Triggers that a run fires when it is over, whoever watches.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunHooks {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_success: Option<HookTrigger>,
    /// When it ended in any other way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<HookTrigger>,
}

impl RunHooks {
    fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// The trigger of a run that ended like this.
    pub fn of(&self, outcome: RunOutcome) -> Option<&HookTrigger> {
        match outcome {
            RunOutcome::Succeeded => self.on_success.as_ref(),
            _ => self.on_failure.as_ref(),
        }
    }
}

/// A trigger, and the nodes that it starts runs on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HookTrigger {
    #[schema(value_type = String)]
    pub trigger: TriggerName,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub hosts: Vec<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// A run that somebody asks for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    pub plan: Plan,
    #[serde(default)]
    pub options: RunOptions,
    #[serde(default)]
    pub subject: Subject,
    #[serde(default, skip_serializing_if = "Due::is_now")]
    pub due: Due,
    #[serde(default, skip_serializing_if = "RunHooks::are_none")]
    pub hooks: RunHooks,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where the plan came from, for those who plan it again. Opaque to servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub site: Option<serde_json::Value>,
    /// The run whose failed and skipped steps this one does. What succeeded
    /// there is not done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub resumes: Option<RunId>,
}

/// A run as it is kept, without its plan and log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunRecord {
    #[schema(value_type = String)]
    pub id: RunId,
    pub plan: PlanId,
    pub environment: String,
    pub steps: usize,
    pub nodes: usize,
    pub options: RunOptions,
    pub subject: Subject,
    #[serde(default, skip_serializing_if = "Due::is_now")]
    pub due: Due,
    #[serde(default, skip_serializing_if = "RunHooks::are_none")]
    pub hooks: RunHooks,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub site: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub resumes: Option<RunId>,
    /// Steps that succeeded in the run that this one resumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<StepIndex>,
}

/// How a run went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunEnd {
    pub outcome: RunOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub begun: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub ended: Timestamp,
    pub tally: Tally,
}

/// One line of the list of runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunSummary {
    #[serde(flatten)]
    pub record: RunRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
}

/// Everything about a run. Whoever has it can compute where the run stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunDetail {
    pub record: RunRecord,
    pub plan: Plan,
    #[serde(flatten)]
    pub log: RunLog,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
}

/// A part of a run's log.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RunLog {
    pub entries: Vec<Entry>,
    /// Pass it to go on after these.
    pub next: u64,
}

/// A part of a run's log, and the outcome once the run has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunLogReply {
    #[serde(flatten)]
    pub log: RunLog,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
}
