//! Reports: nodes write them event by event, operators read them.

use bunraku_model::access::AccessVerb;
use bunraku_model::{NodeName, NodeRunId};
use bunraku_wire::api::ReportStreamMessage;
use bunraku_wire::endpoints::{
    AddReportEvents, FindReport, FollowReport, FollowReports, ListReportEvents, ListReports,
    ShowReport,
};
use futures::stream;

use super::Services;
use crate::http::endpoint::{Call, HandlerResult, LineBody, Routes};
use bunraku_control::reports::ReportFilter;
use bunraku_control::{OperatorIdentity, ServiceError};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(AddReportEvents, take)
        .add(ListReports, list)
        .add(FindReport, find)
        .add(ShowReport, show)
        .add(ListReportEvents, events)
        .add(FollowReport, follow)
        .add(FollowReports, stream_all)
}

/// The query for every node.
const ALL_NODES: &str = "nodes[certname] { }";
/// Default number of reports on a page.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 1_000;

async fn take(call: Call<AddReportEvents>) -> HandlerResult<AddReportEvents> {
    let (services, (node, run)) = (call.services, call.path);
    services.certificates.admit(&node).await?;
    let taken = services.reports.take(&node, run, call.body).await?;
    services.metrics.report_events(taken.stored);
    if let Some(ending) = taken.ended {
        services.metrics.run_ended(ending.as_str());
    }
    if taken.needs_settling {
        settle_later(&services, node, run);
    }
    Ok(taken.receipt)
}

fn settle_later(services: &Services, node: NodeName, run: NodeRunId) {
    let later = services.clone();
    services.closing.spawn(async move {
        if let Err(error) = later.reports.settle(&node, run).await {
            tracing::warn!(%node, %run, error = %error, "a report is settled later");
        }
    });
}

async fn list(call: Call<ListReports>) -> HandlerResult<ListReports> {
    if let Some(node) = &call.query.node {
        call.require_nodes(AccessVerb::View, [node]).await?;
    }
    let within = match call.view().await? {
        None => None,
        Some(view) => {
            let nodes = call.services.queries.nodes_matching_within(ALL_NODES, view);
            Some(nodes.await?.into_iter().collect())
        }
    };
    let filter = ReportFilter {
        within,
        node: call.query.node,
        failed: call.query.failed,
        unfinished: call.query.unfinished,
        limit: call.query.limit.unwrap_or(PAGE).min(LARGEST_PAGE),
        after: call.query.after,
    };
    let reports = call.services.reports.list(&filter).await?;
    if let (true, Some(node)) = (reports.reports.is_empty(), &filter.node) {
        call.services.nodes.require(node).await?;
    }
    Ok(reports)
}

async fn find(call: Call<FindReport>) -> HandlerResult<FindReport> {
    let found = call.services.reports.find(&call.path).await;
    if call.view().await?.is_none() {
        return Ok(found?);
    }
    // To somebody with limits, the reports of other nodes do not exist.
    let hidden = || ServiceError::NotFound {
        what: format!("a report of run `{}`", call.path.to_ascii_lowercase()),
        hint: Some("list reports with `bunraku report list`".to_owned()),
    };
    let found = found.map_err(|error| match error {
        ServiceError::Invalid { .. } | ServiceError::Conflict { .. } => hidden(),
        error => error,
    })?;
    let viewed = call.require_nodes(AccessVerb::View, [&found.node]).await;
    viewed.map_err(|_| hidden())?;
    Ok(found)
}

async fn show(call: Call<ShowReport>) -> HandlerResult<ShowReport> {
    let (node, run) = &call.path;
    Ok(call.services.reports.show(node, *run).await?)
}

async fn events(call: Call<ListReportEvents>) -> HandlerResult<ListReportEvents> {
    let (node, run) = &call.path;
    let events = call.services.reports.events(node, *run, call.query.from);
    Ok(LineBody::new(stream::iter(
        events.await?.into_iter().map(Some),
    )))
}

async fn follow(call: Call<FollowReport>) -> HandlerResult<FollowReport> {
    let (services, (node, run)) = (call.services, call.path);
    if !services.nodes.exists(&node).await? {
        return Err(ServiceError::no_such_node(&node).into());
    }
    let followed = services.reports.follow(&node, run, call.query.from);
    let events = stream::unfold(
        (services, followed),
        |(services, mut followed)| async move {
            let next = tokio::select! {
                () = services.shutdown.cancelled() => return None,
                next = followed.next() => Some(next.map_err(log_error).ok()??),
                () = tokio::time::sleep(services.heartbeat) => None,
            };
            Some((next, (services, followed)))
        },
    );
    Ok(LineBody::new(events))
}

async fn stream_all(call: Call<FollowReports>) -> HandlerResult<FollowReports> {
    if let Some(node) = &call.query.node {
        call.require_nodes(AccessVerb::View, [node]).await?;
    }
    let operator = match call.view().await? {
        None => None,
        Some(_) => Some(call.caller()?.operator()),
    };
    let (services, query) = (call.services, call.query);
    let cursor = query.cursor.as_deref();
    let events = services.reports.stream(query.node.as_ref(), cursor).await?;
    let state = (services, events, operator);
    let messages = stream::unfold(state, |(services, mut events, operator)| async move {
        let next = loop {
            let next = tokio::select! {
                () = services.shutdown.cancelled() => return None,
                next = events.next() => Some(next.map_err(log_error).ok()?),
                () = tokio::time::sleep(services.heartbeat) => None,
            };
            let is_shown = match (&next, &operator) {
                (Some(message), Some(operator)) => {
                    let shown = is_viewed(&services, operator, message).await;
                    shown.map_err(log_error).ok()?
                }
                _ => true,
            };
            if is_shown {
                break next;
            }
        };
        Some((next, (services, events, operator)))
    });
    Ok(LineBody::new(messages))
}

/// Returns whether an operator with limits may view a message, by the rules as they are now.
async fn is_viewed(
    services: &Services,
    operator: &OperatorIdentity,
    message: &ReportStreamMessage,
) -> Result<bool, ServiceError> {
    let ReportStreamMessage::Events { node, .. } = message else {
        return Ok(true);
    };
    let access = &services.access;
    let rules = &access.newest(true).await?.rules;
    let holder = operator.holder();
    let view = access.reach(rules, &holder, AccessVerb::View).await?;
    let environments = access.environments_of([node.clone()].into()).await?;
    Ok(view.covers_node(node, environments.get(node)))
}

fn log_error(error: ServiceError) {
    tracing::warn!(error = %error, "a report stream ended; the reader reconnects");
}
