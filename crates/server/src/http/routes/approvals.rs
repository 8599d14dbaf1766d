//! Approvals of runs and releases.

use bunraku_model::EnvironmentName;
use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_wire::api::approvals::Approval;
use bunraku_wire::api::page::newest_first;
use bunraku_wire::endpoints::{DecideApproval, Endpoint, ListApprovals, ShowApproval};

use crate::http::endpoint::{Call, HandlerResult, Receive, Routes, cut};
use crate::http::reply::ErrorReply;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListApprovals, list)
        .add(ShowApproval, show)
        .add(DecideApproval, decide)
}

async fn list(call: Call<ListApprovals>) -> HandlerResult<ListApprovals> {
    if call.view().await?.is_none() {
        let approvals = call.services.approvals.list().await?;
        return cut(&call.page, approvals, place);
    }
    let mut listed = Vec::new();
    for approval in call.services.approvals.list().await? {
        // To somebody with limits, requests of other environments do not exist.
        if require(&call, AccessVerb::View, &approval).await.is_ok() {
            listed.push(approval);
        }
    }
    cut(&call.page, listed, place)
}

fn place(approval: &Approval) -> String {
    newest_first(approval.requested, &approval.id)
}

async fn show(call: Call<ShowApproval>) -> HandlerResult<ShowApproval> {
    let approval = call.services.approvals.find(&call.path).await?;
    require(&call, AccessVerb::View, &approval).await?;
    Ok(approval)
}

async fn decide(call: Call<DecideApproval>) -> HandlerResult<DecideApproval> {
    let approval = call.services.approvals.find(&call.path).await?;
    require(&call, AccessVerb::Approve, &approval).await?;
    let by = call.by()?;
    let decided = (call.services.approvals).decide(&approval.id, &call.body, by);
    Ok(decided.await?)
}

/// Refuses an operator who may not do this in the environment of the request.
async fn require<E>(call: &Call<E>, verb: AccessVerb, approval: &Approval) -> Result<(), ErrorReply>
where
    E: Endpoint<Request: Receive>,
{
    let environment = EnvironmentName::new(approval.environment.clone());
    let target = environment.map_or(AccessTarget::Everything, AccessTarget::Environment);
    call.require(verb, target).await
}
