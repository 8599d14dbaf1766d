//! Reports: nodes write them event by event, operators read them.

use bunraku_model::{NodeName, NodeRunId};
use bunraku_wire::endpoints::{
    AddReportEvents, FindReport, FollowReport, FollowReports, ListReportEvents, ListReports,
    ShowReport,
};
use futures::stream;

use super::Services;
use crate::http::endpoint::{Call, HandlerResult, LineBody, Routes};
use bunraku_control::ServiceError;
use bunraku_control::reports::ReportFilter;

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
    let filter = ReportFilter {
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
    Ok(call.services.reports.find(&call.path).await?)
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
    let (services, query) = (call.services, call.query);
    let cursor = query.cursor.as_deref();
    let events = services.reports.stream(query.node.as_ref(), cursor).await?;
    let messages = stream::unfold((services, events), |(services, mut events)| async move {
        let next = tokio::select! {
            () = services.shutdown.cancelled() => return None,
            next = events.next() => Some(next.map_err(log_error).ok()?),
            () = tokio::time::sleep(services.heartbeat) => None,
        };
        Some((next, (services, events)))
    });
    Ok(LineBody::new(messages))
}

fn log_error(error: ServiceError) {
    tracing::warn!(error = %error, "a report stream ended; the reader reconnects");
}
