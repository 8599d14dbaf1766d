//! The approval that a new run needs.

use bunraku_control::ServiceError;
use bunraku_plan::RunPlan;
use bunraku_plan::run::NewRun;
use bunraku_wire::api::approvals::{Approval, ApprovalSubject, RunApproval};

use super::{Orchestration, RunOrigin};
use crate::approvals;

impl Orchestration {
    /// Requests approval if the environment requires it: an earlier approval of the same plan
    /// counts, and in an emergency the requester goes ahead with a reason.
    pub(super) async fn approval(
        &self,
        plan: &RunPlan,
        new: &NewRun,
        origin: &RunOrigin,
    ) -> Result<Option<RunApproval>, ServiceError> {
        let (store, now) = (&*self.inner.store, self.inner.clock.now());
        if plan.options.noop {
            return Ok(None);
        }
        let Some((environment, policy)) = approvals::policy_of_plan(store, plan).await? else {
            return Ok(None);
        };
        let earlier = approvals::approved_plan(store, plan.id, now).await?;
        if let Some((approval, by)) = earlier {
            return Ok(Some(RunApproval::Given {
                id: approval.id,
                by,
            }));
        }
        let mut approval = Approval {
            id: origin.id.to_string(),
            environment: environment.to_string(),
            subject: ApprovalSubject::Run {
                run: origin.id,
                plan: plan.id,
                nodes: plan.nodes().len(),
            },
            requested_by: origin.by.clone(),
            requested: now,
            expires: approvals::later(now, policy.expires_seconds),
            reason: new.reason.clone(),
            decision: None,
            result: None,
        };
        let given = match &new.override_approval {
            Some(reason) => {
                approvals::refuse_empty(reason)?;
                approval.decision = Some(approvals::overridden(&origin.by, reason, now));
                RunApproval::Overridden {
                    reason: reason.clone(),
                }
            }
            None => RunApproval::Pending {
                id: approval.id.clone(),
                until: approval.expires,
            },
        };
        approvals::put(store, &approval).await?;
        Ok(Some(given))
    }
}
