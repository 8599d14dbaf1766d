//! Ordered runs over many nodes.

use std::time::Duration;

use bunraku_model::RunId;
use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_wire::api::ordered_runs::{OrderedRunSubject, RunLogReply, RunOptions};
use bunraku_wire::endpoints::{
    BindPlan, CancelRun, CreateRun, Endpoint, ListRuns, ReportRunCheck, ShowRun, ShowRunLog,
    StopRun,
};

use super::longest_wait;
use crate::http::endpoint::{Call, HandlerResult, Receive, Routes};
use crate::http::reply::ErrorReply;
use bunraku_control::{RunRequestKind, ServiceError};

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
        .add(ReportRunCheck, report_check)
}

async fn list(call: Call<ListRuns>) -> HandlerResult<ListRuns> {
    let orchestration = &call.services.orchestration;
    let (Some(permit), Some(_)) = (call.permit(), call.view().await?) else {
        return Ok(orchestration.page(&call.page).await?);
    };
    let mut page = orchestration.page(&call.page).await?;
    let mut viewed = Vec::new();
    for run in page.items {
        let nodes = match orchestration.nodes_of(run.record.id).await {
            Ok((_, nodes)) => nodes,
            Err(error @ ServiceError::Store(_)) => return Err(error.into()),
            // Deleted in the meantime.
            Err(_) => continue,
        };
        let allowed = permit.viewed_nodes(nodes.clone()).await?;
        if allowed.is_none_or(|allowed| allowed.len() == nodes.len()) {
            viewed.push(run);
        }
    }
    page.items = viewed;
    page.total = None;
    Ok(page)
}

async fn create(call: Call<CreateRun>) -> HandlerResult<CreateRun> {
    check_new_run(&call).await?;
    let by = call.by()?.to_owned();
    let record = call.services.orchestration.create(call.body, &by).await?;
    call.notes.detail("run", record.id.to_string());
    if let Some((approval, _)) = record.pending_approval() {
        call.notes.message(format!("waits for approval {approval}"));
    }
    Ok(record)
}

/// Refuses a run unless the operator may do all of it.
async fn check_new_run(call: &Call<CreateRun>) -> Result<(), ErrorReply> {
    let (new, plan) = (&call.body, &call.body.plan);
    let verb = verb_of(&plan.options);
    call.require_nodes(verb, plan.nodes().into_keys()).await?;
    if let OrderedRunSubject::Configured {
        environment: Some(environment),
    } = &plan.subject
    {
        let target = AccessTarget::Environment(environment.clone());
        call.require(verb, target).await?;
    }
    let hooks = [&new.hooks.on_success, &new.hooks.on_failure];
    for hook in hooks.into_iter().flatten() {
        call.require_nodes(AccessVerb::Run, &hook.hosts).await?;
        // It is resolved when the run ends.
        if hook.query.is_some() || hook.hosts.is_empty() {
            call.require(AccessVerb::Run, AccessTarget::Everything)
                .await?;
        }
    }
    if let Some(earlier) = new.resumes {
        require_view(call, earlier, &earlier.to_string()).await?;
    }
    Ok(())
}

fn verb_of(options: &RunOptions) -> AccessVerb {
    if options.noop {
        AccessVerb::NoopRun
    } else {
        AccessVerb::Run
    }
}

async fn bind(call: Call<BindPlan>) -> HandlerResult<BindPlan> {
    call.require_nodes(AccessVerb::View, call.body.plan.nodes().into_keys())
        .await?;
    let (plan, held) = (call.body.plan, call.body.held);
    Ok(call.services.plans.review(plan, held).await?)
}

async fn show(call: Call<ShowRun>) -> HandlerResult<ShowRun> {
    let run = find(&call, &call.path).await?;
    Ok(call.services.orchestration.show(run).await?)
}

async fn log(call: Call<ShowRunLog>) -> HandlerResult<ShowRunLog> {
    let run = find(&call, &call.path).await?;
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
    ask(&call, &call.path, RunRequestKind::Stop).await
}

async fn cancel(call: Call<CancelRun>) -> HandlerResult<CancelRun> {
    ask(&call, &call.path, RunRequestKind::Cancel).await
}

async fn report_check(call: Call<ReportRunCheck>) -> HandlerResult<ReportRunCheck> {
    let by = call.by()?.to_owned();
    let run = find(&call, &call.path).await?;
    let orchestration = call.services.orchestration.clone();
    if call.permit().is_some() {
        let (_, nodes) = orchestration.nodes_of(run).await?;
        call.require_nodes(AccessVerb::Run, &nodes).await?;
    }
    orchestration.report_check(run, call.body, &by).await?;
    Ok(())
}

async fn ask<E>(call: &Call<E>, id: &str, what: RunRequestKind) -> Result<(), ErrorReply>
where
    E: Endpoint<Request: Receive>,
{
    let run = find(call, id).await?;
    let orchestration = &call.services.orchestration;
    if call.permit().is_some() {
        let (record, nodes) = orchestration.nodes_of(run).await?;
        call.require_nodes(verb_of(&record.options), &nodes).await?;
    }
    orchestration.ask(run, what, call.by()?).await?;
    Ok(())
}

/// Finds a run by a prefix of its id. To somebody with limits, a run with a node that they may not
/// view does not exist.
async fn find<E>(call: &Call<E>, id: &str) -> Result<RunId, ErrorReply>
where
    E: Endpoint<Request: Receive>,
{
    let found = call.services.orchestration.find(id).await;
    if call.view().await?.is_none() {
        return Ok(found?);
    }
    match found {
        Ok(run) => require_view(call, run, id).await.map(|()| run),
        Err(ServiceError::Invalid { .. } | ServiceError::NotFound { .. }) => {
            Err(no_such_run(id).into())
        }
        Err(error) => Err(error.into()),
    }
}

async fn require_view<E>(call: &Call<E>, run: RunId, id: &str) -> Result<(), ErrorReply>
where
    E: Endpoint<Request: Receive>,
{
    let (Some(permit), true) = (call.permit(), call.view().await?.is_some()) else {
        return Ok(());
    };
    let nodes = match call.services.orchestration.nodes_of(run).await {
        Ok((_, nodes)) => nodes,
        Err(ServiceError::NotFound { .. }) => return Err(no_such_run(id).into()),
        Err(error) => return Err(error.into()),
    };
    let viewed = permit.require_nodes(AccessVerb::View, &nodes).await;
    viewed.map_err(|_| no_such_run(id).into())
}

fn no_such_run(id: &str) -> ServiceError {
    ServiceError::NotFound {
        what: format!("run `{id}`"),
        hint: Some("list the runs that you may view with `bunraku run list`".to_owned()),
    }
}
