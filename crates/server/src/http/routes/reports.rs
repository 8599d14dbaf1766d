//! Reports: written by nodes event by event, read by operators.

use std::convert::Infallible;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use bunraku_model::{NodeName, NodeRunId};
use bunraku_wire::api::{
    NumberedEvent, Problem, ReportBatch, ReportPage, ReportReceipt, ReportStreamMessage,
    ReportSummary,
};
use bytes::Bytes;
use futures::{Stream, stream};
use http::header;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{Answer, Body, PathId, PathNode, Services};
use crate::http::reply::Refusal;
use bunraku_control::ServiceError;
use bunraku_control::reports::ReportFilter;

/// Reports on a page when nobody says.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 1_000;

/// Some events of a node run, without gaps. What is there already is dropped;
/// behind a gap it is refused (409) with the number that is `wanted`.
#[utoipa::path(post, path = "/v1/nodes/{node}/reports/{id}/events", tag = "reports",
    params(("node" = String, Path), ("id" = String, Path)), request_body = ReportBatch,
    responses((status = 200, body = ReportReceipt), (status = "default", body = Problem)))]
pub(crate) async fn take(
    State(services): State<Services>,
    PathNode(node): PathNode,
    PathId(run): PathId<NodeRunId>,
    Body(batch): Body<ReportBatch>,
) -> Answer<ReportReceipt> {
    services.certificates.admit(&node).await?;
    let taken = services.reports.take(&node, run, batch).await?;
    services.metrics.report_events(taken.stored);
    if let Some(ending) = taken.ended {
        services.metrics.run_ended(ending.as_str());
        let later = services.clone();
        services.closing.spawn(async move {
            if let Err(error) = later.reports.settle(&node, run).await {
                tracing::warn!(%node, %run, error = %error, "a report is settled later");
            }
        });
    }
    Ok(Json(taken.receipt))
}

/// Which reports.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Of this node only.
    #[param(value_type = Option<String>)]
    node: Option<NodeName>,
    /// Only those that ended in anything but success, or whose node is gone.
    #[serde(default)]
    failed: bool,
    /// Only those without an end.
    #[serde(default)]
    unfinished: bool,
    /// At most so many; 50 when not given, 1000 at most.
    limit: Option<usize>,
    /// From the page before.
    after: Option<String>,
}

/// Reports, newest first.
#[utoipa::path(get, path = "/v1/reports", tag = "reports", params(Which),
    responses((status = 200, body = ReportPage), (status = "default", body = Problem)))]
pub(crate) async fn list(
    State(services): State<Services>,
    Query(which): Query<Which>,
) -> Answer<ReportPage> {
    let filter = ReportFilter {
        node: which.node,
        failed: which.failed,
        unfinished: which.unfinished,
        limit: which.limit.unwrap_or(PAGE).min(LARGEST_PAGE),
        after: which.after,
    };
    Ok(Json(services.reports.list(&filter).await?))
}

/// One report, by its run or the beginning of its run's id.
#[utoipa::path(get, path = "/v1/reports/{id}", tag = "reports", params(("id" = String, Path)),
    responses((status = 200, body = ReportSummary), (status = "default", body = Problem)))]
pub(crate) async fn find(
    State(services): State<Services>,
    Path(id): Path<String>,
) -> Answer<ReportSummary> {
    Ok(Json(services.reports.find(&id).await?))
}

/// One report of a node.
#[utoipa::path(get, path = "/v1/nodes/{node}/reports/{id}", tag = "reports",
    params(("node" = String, Path), ("id" = String, Path)),
    responses((status = 200, body = ReportSummary), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    PathNode(node): PathNode,
    PathId(run): PathId<NodeRunId>,
) -> Answer<ReportSummary> {
    Ok(Json(services.reports.show(&node, run).await?))
}

/// From where.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct From {
    /// The number of the first event that is wanted.
    #[serde(default)]
    from: u64,
}

/// The events of a report, one per line, as far as there are.
#[utoipa::path(get, path = "/v1/nodes/{node}/reports/{id}/events", tag = "reports",
    params(("node" = String, Path), ("id" = String, Path), From),
    responses((status = 200, body = NumberedEvent, content_type = "application/x-ndjson"), (status = "default", body = Problem)))]
pub(crate) async fn events(
    State(services): State<Services>,
    PathNode(node): PathNode,
    PathId(run): PathId<NodeRunId>,
    Query(from): Query<From>,
) -> Result<Response, Refusal> {
    let events = services.reports.events(&node, run, from.from).await?;
    let lines = events
        .into_iter()
        .map(|event| Ok::<_, Infallible>(line(&event)));
    Ok(reply(stream::iter(lines)))
}

/// The events of a report as they come, one per line, to the end of the run,
/// or until its node is lost. The report may be yet to come.
#[utoipa::path(get, path = "/v1/nodes/{node}/reports/{id}/stream", tag = "reports",
    params(("node" = String, Path), ("id" = String, Path), From),
    responses((status = 200, body = NumberedEvent, content_type = "application/x-ndjson"), (status = "default", body = Problem)))]
pub(crate) async fn follow(
    State(services): State<Services>,
    PathNode(node): PathNode,
    PathId(run): PathId<NodeRunId>,
    Query(from): Query<From>,
) -> Result<Response, Refusal> {
    if !services.nodes.exists(&node).await? {
        return Err(ServiceError::no_such_node(&node).into());
    }
    let followed = services.reports.follow(&node, run, from.from);
    let lines = stream::unfold(
        (services, followed),
        |(services, mut followed)| async move {
            let next = tokio::select! {
                () = services.shutdown.cancelled() => return None,
                next = followed.next() => next.map(|event| event.map(|event| line(&event))),
                () = tokio::time::sleep(services.heartbeat) => Ok(Some(Bytes::from_static(b"\n"))),
            };
            Some((next.map_err(noted).ok()??, (services, followed)))
        },
    );
    Ok(reply(lines_of(lines)))
}

/// Whose events, and after what.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct After {
    /// Of this node only.
    #[param(value_type = Option<String>)]
    node: Option<NodeName>,
    /// From an earlier message; without one, from now on.
    cursor: Option<String>,
}

/// Everybody's events as they come.
#[utoipa::path(get, path = "/v1/reports/stream", tag = "reports", params(After),
    responses((status = 200, body = ReportStreamMessage, content_type = "application/x-ndjson"), (status = "default", body = Problem)))]
pub(crate) async fn stream_all(
    State(services): State<Services>,
    Query(after): Query<After>,
) -> Result<Response, Refusal> {
    let cursor = after.cursor.as_deref();
    let events = services.reports.stream(after.node.as_ref(), cursor).await?;
    let lines = stream::unfold((services, events), |(services, mut events)| async move {
        let next = tokio::select! {
            () = services.shutdown.cancelled() => return None,
            next = events.next() => next.map(|message| line(&message)),
            () = tokio::time::sleep(services.heartbeat) => Ok(Bytes::from_static(b"\n")),
        };
        Some((next.map_err(noted).ok()?, (services, events)))
    });
    Ok(reply(lines_of(lines)))
}

fn noted(error: ServiceError) {
    tracing::warn!(error = %error, "a stream of reports ended; its reader comes back");
}

fn lines_of(
    lines: impl Stream<Item = Bytes> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    futures::StreamExt::map(lines, Ok)
}

fn line<T: Serialize>(value: &T) -> Bytes {
    let mut line = serde_json::to_vec(value).expect("events are plain data that JSON can hold");
    line.push(b'\n');
    Bytes::from(line)
}

fn reply(lines: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, HttpBody::from_stream(lines)).into_response()
}
