//! Ordered runs over many nodes.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{Json, NoContent, Paged};
use crate::api::ordered_runs::{
    CheckResult, NewRun, PlanReview, ReviewPlan, RunDetail, RunLogReply, RunRecord, RunSummary,
};

/// Where to continue in the log of a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RunLogQuery {
    /// The `next` of the last reply.
    #[serde(default)]
    pub after: u64,
    /// Seconds to wait for new entries, at most 60. Default: do not wait.
    #[serde(default)]
    pub wait_seconds: u64,
}

endpoints! {
    tag "runs";

    /// List all runs, newest first.
    ListRuns: Get "/v1/runs" {
        access: Operator,
        needs: View on Each,
        reply: Paged<RunSummary>,
    }

    /// Start a run, or schedule it.
    CreateRun: Post "/v1/runs" {
        access: Operator,
        needs: NoopRun on Each,
        body: Json<NewRun>,
        reply: Json<RunRecord>,
        body_limit: Large,
        object: ("environment", "plan.environment"),
        details: ["plan.id", "plan.applications", "plan.options", "resumes", "replanned", "override_approval"],
    }

    /// Complete a plan with the work of every node, and show what it would change.
    ///
    /// Changes nothing. The plan in the reply can be started as long as it is still valid.
    BindPlan: Post "/v1/plans" {
        access: Operator,
        needs: View on Each,
        body: Json<ReviewPlan>,
        reply: Json<PlanReview>,
        body_limit: Large,
        audited: No,
    }

    /// Show a run with its plan and its log.
    ///
    /// `id` may be the beginning of a run id.
    ShowRun: Get "/v1/runs/{id}" {
        access: Operator,
        needs: View on Each,
        path: String,
        reply: Json<RunDetail>,
    }

    /// Show the log of a run; can wait for new entries.
    ShowRunLog: Get "/v1/runs/{id}/log" {
        access: Operator,
        needs: View on Each,
        path: String,
        query: RunLogQuery,
        reply: Json<RunLogReply>,
    }

    /// Stop a run: start no more nodes, and let running ones finish.
    StopRun: Post "/v1/runs/{id}/stop" {
        access: Operator,
        needs: NoopRun on Each,
        path: String,
        reply: NoContent,
        object: ("run", "id"),
    }

    /// Cancel a run: start no more nodes, and end running ones.
    CancelRun: Post "/v1/runs/{id}/cancel" {
        access: Operator,
        needs: NoopRun on Each,
        path: String,
        reply: NoContent,
        object: ("run", "id"),
    }

    /// Report the result of a check that no server performs: a confirmation, or a command on the
    /// operator's machine.
    ReportRunCheck: Post "/v1/runs/{id}/checks" {
        access: Operator,
        needs: Run on Each,
        path: String,
        body: Json<CheckResult>,
        reply: NoContent,
        object: ("run", "id"),
        details: ["gate", "check", "passed", "message"],
    }
}
