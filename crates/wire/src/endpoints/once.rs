//! Tasks that are done once.

use bunraku_model::{AppName, NodeName};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{Json, NoContent, Paged, WaitQuery};
use crate::api::once::{
    ClaimOnce, ClaimReply, ContributeFragment, DefineOnce, FinishClaim, KeepClaim, OnceAttempt,
    OnceReport, OnceStatus, OnceSummary, PermitOnce, ResetOnce, StatOnce,
};

/// How to evaluate a task.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OnceStatusQuery {
    /// Evaluate as if a failed attempt may be repeated.
    #[serde(default)]
    pub retry: bool,
}

endpoints! {
    tag "once";

    /// List all once tasks.
    ListOnceTasks: Get "/v1/once" {
        access: Operator,
        needs: View on Everything,
        reply: Paged<OnceSummary>,
    }

    /// Show a once task with its history.
    ShowOnceTask: Get "/v1/once/{app}" {
        access: Operator,
        needs: View on Everything,
        path: AppName,
        reply: Json<OnceReport>,
    }

    /// Check whether the caller could claim a task now.
    ShowOnceStanding: Get "/v1/once/{app}/standing" {
        access: NodeOrOperator,
        needs: View on Everything,
        path: AppName,
        query: OnceStatusQuery,
        reply: Json<OnceStatus>,
        old_data: Refused,
    }

    /// Check whether the caller could claim a task with this definition.
    ///
    /// The definition is not stored.
    CheckOnceStanding: Post "/v1/once/{app}/standing" {
        access: NodeOrOperator,
        needs: View on Everything,
        path: AppName,
        body: Json<StatOnce>,
        reply: Json<OnceStatus>,
        audited: No,
    }

    /// Let nodes take part in a task.
    PermitOnceTask: Post "/v1/once/{app}/permissions" {
        access: Operator,
        needs: Administer on Everything,
        path: AppName,
        body: Json<PermitOnce>,
        reply: NoContent,
        details: ["permissions", "replace"],
    }

    /// Define a once task.
    ///
    /// A node may do so only if operators permit it (`init_on`).
    DefineOnceTask: Put "/v1/once/{app}/definition" {
        access: NodeOrOperator,
        needs: Run on Everything,
        path: AppName,
        body: Json<DefineOnce>,
        reply: NoContent,
    }

    /// Add the fragment of a node to the definition of a task.
    AddOnceFragment: Put "/v1/once/{app}/fragments/{node}" {
        access: OwnNodeOrOperator,
        needs: Run on Node,
        path: (AppName, NodeName),
        body: Json<ContributeFragment>,
        reply: NoContent,
    }

    /// Remove the fragment of a node from the definition of a task.
    RemoveOnceFragment: Delete "/v1/once/{app}/fragments/{node}" {
        access: OwnNodeOrOperator,
        needs: Run on Node,
        path: (AppName, NodeName),
        reply: NoContent,
    }

    /// Claim a task. Only one caller succeeds.
    ClaimOnceTask: Post "/v1/once/{app}/claims" {
        access: NodeOrOperator,
        needs: Run on Everything,
        path: AppName,
        body: Json<ClaimOnce>,
        reply: Json<ClaimReply>,
        details: ["retry"],
    }

    /// Renew the lease of a claim.
    KeepOnceClaim: Put "/v1/once/{app}/claims/{token}" {
        access: NodeOrOperator,
        needs: Run on Everything,
        path: (AppName, u64),
        body: Json<KeepClaim>,
        reply: NoContent,
        audited: Routine,
    }

    /// Report the outcome of a claim.
    FinishOnceClaim: Put "/v1/once/{app}/claims/{token}/outcome" {
        access: NodeOrOperator,
        needs: Run on Everything,
        path: (AppName, u64),
        body: Json<FinishClaim>,
        reply: NoContent,
        details: ["exit_code"],
    }

    /// Show an attempt that has ended; can wait for its end.
    ShowOnceAttempt: Get "/v1/once/{app}/attempts/{token}" {
        access: NodeOrOperator,
        needs: View on Everything,
        path: (AppName, u64),
        query: WaitQuery,
        reply: Json<OnceAttempt>,
    }

    /// Reset a task so that it can be done again.
    ResetOnceTask: Post "/v1/once/{app}/reset" {
        access: Operator,
        needs: Run on Everything,
        path: AppName,
        body: Json<ResetOnce>,
        reply: NoContent,
    }
}
