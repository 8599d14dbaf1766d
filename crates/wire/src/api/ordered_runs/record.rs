//! Runs: requests, records and replies.

use bunraku_model::{EnvironmentName, NodeName, ReleaseNumber, RunId, TriggerName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::event::RunLogEntry;
use super::options::RunOptions;
use super::outcome::{RunOutcome, StepCounts};
use super::plan::{PlanId, RunPlan, StepIndex};
use super::rollout::RunWait;
use crate::api::TriggerCause;
use crate::api::approvals::RunApproval;

/// What each node applies.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(tag = "carry_out", rename_all = "snake_case")]
pub enum OrderedRunSubject {
    /// The node's released catalog.
    #[default]
    Released,
    /// The node's catalog of this release.
    Release {
        #[schema(value_type = u64)]
        release: ReleaseNumber,
    },
    /// The node's configured run method: a command or the Puppet agent.
    Configured {
        /// Puppet's environment for this run. By default, the node's settings name it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        environment: Option<EnvironmentName>,
    },
}

/// The time when a run may begin. Before that, it delays no other run. Then it queues behind the
/// runs that were due earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunStart {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub not_before: Option<Timestamp>,
    /// The latest start. A run that has not begun by then expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_before: Option<Timestamp>,
}

impl RunStart {
    fn is_now(&self) -> bool {
        *self == Self::default()
    }
}

/// Triggers that are fired when a run ends.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunHooks {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_success: Option<HookTrigger>,
    /// Fired if the run did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<HookTrigger>,
}

impl RunHooks {
    fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the trigger for this outcome.
    pub fn of(&self, outcome: RunOutcome) -> Option<&HookTrigger> {
        match outcome {
            RunOutcome::Succeeded => self.on_success.as_ref(),
            _ => self.on_failure.as_ref(),
        }
    }
}

/// A trigger and its hosts.
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

/// A request for a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    /// The plan, with its options. If its steps do not name their work, the server fills in the
    /// work as it is now.
    pub plan: RunPlan,
    #[serde(default, skip_serializing_if = "RunStart::is_now")]
    pub due: RunStart,
    #[serde(default, skip_serializing_if = "RunHooks::are_none")]
    pub hooks: RunHooks,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The source of the plan, for planning it again. Opaque to servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub site: Option<serde_json::Value>,
    /// The run that this one resumes. Steps that succeeded there are not repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub resumes: Option<RunId>,
    /// `true` if the plan may differ from that of the run that this one resumes. Steps that
    /// succeeded there are not repeated if neither they nor the steps before them have changed.
    #[serde(default)]
    pub replanned: bool,
    /// The reason for running without the approval that the environment requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_approval: Option<String>,
}

impl NewRun {
    /// A request for an immediate run of a plan, with the defaults of everything else.
    pub fn of(plan: RunPlan) -> Self {
        Self {
            plan,
            due: RunStart::default(),
            hooks: RunHooks::default(),
            reason: None,
            site: None,
            resumes: None,
            replanned: false,
            override_approval: None,
        }
    }
}

/// A stored run, without its plan and log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunRecord {
    #[schema(value_type = String)]
    pub id: RunId,
    pub plan: PlanId,
    pub environment: String,
    pub steps: usize,
    pub nodes: usize,
    pub options: RunOptions,
    pub subject: OrderedRunSubject,
    #[serde(default, skip_serializing_if = "RunStart::is_now")]
    pub due: RunStart,
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
    /// `true` if the plan is another one than that of the run that this one resumes.
    #[serde(default)]
    pub replanned: bool,
    /// The chain of causes, if a reactor started the run. The runs of its nodes carry it on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<TriggerCause>,
    /// The approval, if the environment required one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<RunApproval>,
}

impl RunRecord {
    /// Returns the request for approval, and until when it may be approved.
    pub fn pending_approval(&self) -> Option<(&str, Timestamp)> {
        match &self.approval {
            Some(RunApproval::Pending { id, until }) => Some((id, *until)),
            _ => None,
        }
    }

    /// Returns `true` if the run completes the plan of an earlier run.
    pub fn completes_earlier_plan(&self) -> bool {
        self.resumes.is_some() && !self.replanned
    }
}

/// The end of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunEnd {
    pub outcome: RunOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub begun: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub ended: Timestamp,
    pub tally: StepCounts,
}

/// A run in the list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunSummary {
    #[serde(flatten)]
    pub record: RunRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
}

/// All details of a run. The state of the run can be computed from it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunDetail {
    pub record: RunRecord,
    pub plan: RunPlan,
    #[serde(flatten)]
    pub log: RunLog,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
    /// What the run is waiting for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<RunWait>,
}

/// A part of a run's log.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RunLog {
    pub entries: Vec<RunLogEntry>,
    /// The cursor for the next part.
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
