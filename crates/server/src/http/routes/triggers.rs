//! Triggers.

use bunraku_wire::endpoints::{
    FireTrigger, LimitTrigger, ListTriggerEvents, ListTriggers, RemoveTriggerLimits, ShowTrigger,
};

use crate::http::endpoint::{Answer, Call, Routes};
use bunraku_cues::once::Asker;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(FireTrigger, fire)
        .add(ListTriggers, list)
        .add(ShowTrigger, show)
        .add(LimitTrigger, define)
        .add(RemoveTriggerLimits, forget)
        .add(ListTriggerEvents, history)
}

async fn fire(call: Call<FireTrigger>) -> Answer<FireTrigger> {
    let caller = call.caller()?;
    let asker = Asker {
        name: &caller.name,
        role: caller.role,
    };
    let fired = call.services.triggers.fire(&call.path, asker, &call.body);
    Ok(fired.await?)
}

async fn list(call: Call<ListTriggers>) -> Answer<ListTriggers> {
    Ok(call.services.triggers.list().await?)
}

async fn show(call: Call<ShowTrigger>) -> Answer<ShowTrigger> {
    Ok(call.services.triggers.show(&call.path).await?)
}

async fn define(call: Call<LimitTrigger>) -> Answer<LimitTrigger> {
    call.services
        .triggers
        .define(&call.path, &call.body)
        .await?;
    Ok(())
}

async fn forget(call: Call<RemoveTriggerLimits>) -> Answer<RemoveTriggerLimits> {
    call.services.triggers.forget(&call.path).await?;
    Ok(())
}

async fn history(call: Call<ListTriggerEvents>) -> Answer<ListTriggerEvents> {
    let (trigger, most) = (call.query.trigger.as_ref(), call.query.most);
    let events = call
        .services
        .triggers
        .history(trigger, most.unwrap_or(50))
        .await?;
    Ok(events)
}
