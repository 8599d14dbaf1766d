//! Triggers.

use bunraku_wire::endpoints::{
    FireTrigger, LimitTrigger, ListTriggerEvents, ListTriggers, PermitTrigger, RemoveTriggerLimits,
    ShowTrigger,
};

use crate::http::endpoint::{Call, HandlerResult, Routes};

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

async fn fire(call: Call<FireTrigger>) -> HandlerResult<FireTrigger> {
    let asker = call.caller()?.for_cues();
    let fired = call.services.triggers.fire(&call.path, asker, &call.body);
    Ok(fired.await?)
}

async fn list(call: Call<ListTriggers>) -> HandlerResult<ListTriggers> {
    Ok(call.services.triggers.list().await?)
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
