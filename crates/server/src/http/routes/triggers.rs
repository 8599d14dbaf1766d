//! Triggers.

use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_wire::endpoints::{
    FireTrigger, LimitTrigger, ListTriggerEvents, ListTriggers, PermitTrigger, RemoveTriggerLimits,
    ShowTrigger,
};

use crate::http::endpoint::{Call, HandlerResult, Routes, cut};
use crate::http::reply::ErrorReply;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(FireTrigger, fire)
        .add(ListTriggers, list)
        .add(ShowTrigger, show)
        .add(LimitTrigger, define)
        .add(PermitTrigger, permit)
        .add(RemoveTriggerLimits, forget)
        .add(ListTriggerEvents, history)
}

async fn fire(mut call: Call<FireTrigger>) -> HandlerResult<FireTrigger> {
    if let Some(permit) = call.permit()
        && !permit.is_everything(AccessVerb::Run).await?
    {
        limit_hosts(&mut call).await?;
    }
    let asker = call.caller()?.for_cues();
    let fired = call.services.triggers.fire(&call.path, asker, &call.body);
    Ok(fired.await?)
}

/// Resolves the hosts of a firing for an operator with limits, and refuses it unless all of them
/// are within.
async fn limit_hosts(call: &mut Call<FireTrigger>) -> Result<(), ErrorReply> {
    if call.body.hosts.is_empty() && call.body.query.is_none() {
        // The trigger's own query says where it fires.
        return call
            .require(AccessVerb::Run, AccessTarget::Everything)
            .await;
    }
    if let Some(query) = call.body.query.take() {
        let queries = &call.services.queries;
        let found = match call.view().await? {
            None => queries.nodes_matching(&query).await?,
            Some(view) => queries.nodes_matching_within(&query, view).await?,
        };
        call.body.hosts.extend(found);
    }
    if call.body.hosts.is_empty() {
        let message = "the query matches no node that you may view".to_owned();
        return Err(ErrorReply::invalid(message));
    }
    call.require_nodes(AccessVerb::Run, &call.body.hosts).await
}

async fn list(call: Call<ListTriggers>) -> HandlerResult<ListTriggers> {
    let triggers = call.services.triggers.list().await?;
    cut(&call.page, triggers, |trigger| trigger.name.to_string())
}

async fn show(call: Call<ShowTrigger>) -> HandlerResult<ShowTrigger> {
    Ok(call.services.triggers.show(&call.path).await?)
}

async fn define(call: Call<LimitTrigger>) -> HandlerResult<LimitTrigger> {
    call.services
        .triggers
        .define(&call.path, &call.body)
        .await?;
    Ok(())
}

async fn permit(call: Call<PermitTrigger>) -> HandlerResult<PermitTrigger> {
    call.services
        .triggers
        .permit(&call.path, &call.body)
        .await?;
    Ok(())
}

async fn forget(call: Call<RemoveTriggerLimits>) -> HandlerResult<RemoveTriggerLimits> {
    call.services.triggers.forget(&call.path).await?;
    Ok(())
}

async fn history(call: Call<ListTriggerEvents>) -> HandlerResult<ListTriggerEvents> {
    let (trigger, most) = (call.query.trigger.as_ref(), call.query.most);
    let events = call
        .services
        .triggers
        .history(trigger, most.unwrap_or(50))
        .await?;
    Ok(events)
}
