//! Ordered runs over many nodes.

use std::time::Duration;

use bunraku_wire::api::ordered_runs::RunLogReply;
use bunraku_wire::endpoints::{
    BindPlan, CancelRun, CreateRun, ListRuns, ShowRun, ShowRunLog, StopRun,
};

use super::{Services, longest_wait};
use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::reply::ErrorReply;
use bunraku_control::RunRequestKind;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListRuns, list)
        .add(CreateRun, create)
        .add(BindPlan, bind)
        .add(ShowRun, show)
        .add(ShowRunLog, log)
        .add(StopRun, stop)
        .add(CancelRun, cancel)
}

async fn list(call: Call<ListRuns>) -> HandlerResult<ListRuns> {
    Ok(call.services.orchestration.list().await?)
}

async fn create(call: Call<CreateRun>) -> HandlerResult<CreateRun> {
    let by = call.by()?.to_owned();
    let record = call.services.orchestration.create(call.body, &by).await?;
    call.notes.detail("run", record.id.to_string());
    Ok(record)
}

async fn bind(call: Call<BindPlan>) -> HandlerResult<BindPlan> {
    let (plan, held) = (call.body.plan, call.body.held);
    Ok(call.services.plans.review(plan, held).await?)
}

async fn show(call: Call<ShowRun>) -> HandlerResult<ShowRun> {
    let run = call.services.orchestration.find(&call.path).await?;
    Ok(call.services.orchestration.show(run).await?)
}

async fn log(call: Call<ShowRunLog>) -> HandlerResult<ShowRunLog> {
    let run = call.services.orchestration.find(&call.path).await?;
    let most = longest_wait(call.query.wait_seconds);
    let following = call
        .services
        .orchestration
        .follow_log(run, call.query.after, most);
    let (log, end) = tokio::select! {
        text = following => text?,
        () = call.services.shutdown.cancelled() => {
            call.services.orchestration.follow_log(run, call.query.after, Duration::ZERO).await?
        }
    };
    Ok(RunLogReply { log, end })
}

async fn stop(call: Call<StopRun>) -> HandlerResult<StopRun> {
    ask(&call.services, call.by()?, &call.path, RunRequestKind::Stop).await
}

async fn cancel(call: Call<CancelRun>) -> HandlerResult<CancelRun> {
    ask(
        &call.services,
        call.by()?,
        &call.path,
        RunRequestKind::Cancel,
    )
    .await
}

async fn ask(
    services: &Services,
    by: &str,
    id: &str,
    what: RunRequestKind,
) -> Result<(), ErrorReply> {
    let run = services.orchestration.find(id).await?;
    services.orchestration.ask(run, what, by).await?;
    Ok(())
}
