//! Tasks that run only once.

use std::time::Duration;

use bunraku_model::access::AccessVerb;
use bunraku_wire::api::once::{ClaimReply, StatOnce};
use bunraku_wire::endpoints::{
    AddOnceFragment, CheckOnceStanding, ClaimOnceTask, DefineOnceTask, FinishOnceClaim,
    KeepOnceClaim, ListOnceTasks, PermitOnceTask, RemoveOnceFragment, ResetOnceTask,
    ShowOnceAttempt, ShowOnceStanding, ShowOnceTask,
};

use super::longest_wait;
use crate::http::caller::Caller;
use crate::http::endpoint::{Call, HandlerResult, Routes, cut};
use crate::http::hidden_secrets;
use bunraku_cues::CueCaller;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ShowOnceStanding, show_status)
        .add(CheckOnceStanding, check_status)
        .add(ListOnceTasks, list)
        .add(ShowOnceTask, show)
        .add(DefineOnceTask, define)
        .add(PermitOnceTask, permit)
        .add(AddOnceFragment, contribute)
        .add(RemoveOnceFragment, withdraw)
        .add(ClaimOnceTask, claim)
        .add(KeepOnceClaim, keep_alive)
        .add(FinishOnceClaim, finish)
        .add(ShowOnceAttempt, attempt)
        .add(ResetOnceTask, reset)
}

fn asker(caller: &Caller) -> CueCaller<'_> {
    caller.for_cues()
}

async fn show_status(call: Call<ShowOnceStanding>) -> HandlerResult<ShowOnceStanding> {
    let request = StatOnce {
        definition: None,
        retry: call.query.retry,
    };
    let standing = call
        .services
        .once
        .status(&call.path, asker(call.caller()?), &request);
    Ok(standing.await?)
}

async fn check_status(call: Call<CheckOnceStanding>) -> HandlerResult<CheckOnceStanding> {
    let standing = call
        .services
        .once
        .status(&call.path, asker(call.caller()?), &call.body);
    Ok(standing.await?)
}

async fn list(call: Call<ListOnceTasks>) -> HandlerResult<ListOnceTasks> {
    let tasks = call.services.once.list(asker(call.caller()?)).await?;
    cut(&call.page, tasks, |task| task.app.to_string())
}

async fn show(call: Call<ShowOnceTask>) -> HandlerResult<ShowOnceTask> {
    let shown = call.services.once.show(&call.path, asker(call.caller()?));
    let mut shown = shown.await?;
    if let Some(permit) = call.permit()
        && !permit.is_everything(AccessVerb::ViewSecrets).await?
    {
        hidden_secrets::hide_once(&mut shown);
    }
    Ok(shown)
}

async fn define(call: Call<DefineOnceTask>) -> HandlerResult<DefineOnceTask> {
    call.services
        .once
        .define(&call.path, asker(call.caller()?), &call.body)
        .await?;
    Ok(())
}

async fn permit(call: Call<PermitOnceTask>) -> HandlerResult<PermitOnceTask> {
    call.services.once.permit(&call.path, &call.body).await?;
    Ok(())
}

async fn contribute(call: Call<AddOnceFragment>) -> HandlerResult<AddOnceFragment> {
    let (app, host) = &call.path;
    let contributed =
        call.services
            .once
            .contribute(app, host, &call.body.fragment, asker(call.caller()?));
    contributed.await?;
    Ok(())
}

async fn withdraw(call: Call<RemoveOnceFragment>) -> HandlerResult<RemoveOnceFragment> {
    let (app, host) = &call.path;
    call.services.once.withdraw(app, host).await?;
    Ok(())
}

async fn claim(call: Call<ClaimOnceTask>) -> HandlerResult<ClaimOnceTask> {
    let reply = call
        .services
        .once
        .claim(&call.path, asker(call.caller()?), &call.body)
        .await?;
    match &reply {
        ClaimReply::Granted { attempt, .. } => call.notes.detail("token", attempt.token),
        ClaimReply::Refused { .. } => call.notes.nothing_changed(),
    }
    Ok(reply)
}

async fn keep_alive(call: Call<KeepOnceClaim>) -> HandlerResult<KeepOnceClaim> {
    let (app, token) = &call.path;
    let kept = call
        .services
        .once
        .keep_alive(app, *token, asker(call.caller()?), &call.body);
    kept.await?;
    Ok(())
}

async fn finish(call: Call<FinishOnceClaim>) -> HandlerResult<FinishOnceClaim> {
    let (app, token) = &call.path;
    let finished = call
        .services
        .once
        .finish(app, *token, asker(call.caller()?), &call.body);
    finished.await?;
    Ok(())
}

async fn attempt(call: Call<ShowOnceAttempt>) -> HandlerResult<ShowOnceAttempt> {
    let (app, token) = &call.path;
    let (asker, once) = (asker(call.caller()?), &call.services.once);
    let most = longest_wait(call.query.wait_seconds);
    let attempt = tokio::select! {
        attempt = once.wait(app, *token, asker, most) => attempt?,
        () = call.services.shutdown.cancelled() => once.wait(app, *token, asker, Duration::ZERO).await?,
    };
    Ok(attempt)
}

async fn reset(call: Call<ResetOnceTask>) -> HandlerResult<ResetOnceTask> {
    let reset = call.services.once.reset(&call.path, &call.body, call.by()?);
    reset.await?;
    Ok(())
}
