//! Ordered runs over many nodes.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use bunraku_plan::run::{NewRun, RunDetail, RunEnd, RunLog, RunRecord, RunSummary};
use bunraku_wire::api::Problem;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{Answer, Body, Services};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;
use bunraku_control::RunRequestKind;

/// The longest that an answer is held back.
const LONGEST_WAIT: u64 = 60;

/// All runs, newest first.
#[utoipa::path(get, path = "/v1/runs", tag = "runs",
    responses((status = 200, body = Vec<serde_json::Value>), (status = "default", body = Problem)))]
pub(crate) async fn list(State(services): State<Services>) -> Answer<Vec<RunSummary>> {
    Ok(Json(services.orchestration.list().await?))
}

/// Start a run.
#[utoipa::path(post, path = "/v1/runs", tag = "runs", request_body = serde_json::Value,
    responses((status = 200, body = serde_json::Value), (status = "default", body = Problem)))]
pub(crate) async fn create(
    State(services): State<Services>,
    caller: Caller,
    Body(new): Body<NewRun>,
) -> Answer<RunRecord> {
    let record = services
        .orchestration
        .create(new, caller.name.as_str())
        .await?;
    Ok(Json(record))
}

/// One run, with its plan and its log so far.
#[utoipa::path(get, path = "/v1/runs/{id}", tag = "runs", params(("id" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    Path(id): Path<String>,
) -> Answer<RunDetail> {
    let run = services.orchestration.find(&id).await?;
    Ok(Json(services.orchestration.show(run).await?))
}

/// Where to go on, and how long to hold the answer back.
#[derive(Deserialize, IntoParams)]
pub(crate) struct From {
    /// What the last answer said as `next`.
    #[serde(default)]
    after: u64,
    /// Seconds to wait for something new, at most 60.
    #[serde(default)]
    wait_seconds: u64,
}

/// A part of a run's log, and how the run went once it is over.
#[derive(Serialize)]
pub(crate) struct LogReply {
    #[serde(flatten)]
    log: RunLog,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<RunEnd>,
}

/// What happened in a run since.
#[utoipa::path(get, path = "/v1/runs/{id}/log", tag = "runs", params(("id" = String, Path), From),
    responses((status = 200, body = serde_json::Value), (status = "default", body = Problem)))]
pub(crate) async fn log(
    State(services): State<Services>,
    Path(id): Path<String>,
    Query(from): Query<From>,
) -> Answer<LogReply> {
    let run = services.orchestration.find(&id).await?;
    let most = Duration::from_secs(from.wait_seconds.min(LONGEST_WAIT));
    let following = services.orchestration.follow_log(run, from.after, most);
    let (log, end) = tokio::select! {
        told = following => told?,
        () = services.shutdown.cancelled() => {
            services.orchestration.follow_log(run, from.after, Duration::ZERO).await?
        }
    };
    Ok(Json(LogReply { log, end }))
}

/// Start nothing new; what runs, ends by itself.
#[utoipa::path(post, path = "/v1/runs/{id}/stop", tag = "runs", params(("id" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn stop(
    State(services): State<Services>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    ask(&services, &caller, &id, RunRequestKind::Stop).await
}

/// End what runs.
#[utoipa::path(post, path = "/v1/runs/{id}/cancel", tag = "runs", params(("id" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn cancel(
    State(services): State<Services>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    ask(&services, &caller, &id, RunRequestKind::Cancel).await
}

async fn ask(
    services: &Services,
    caller: &Caller,
    id: &str,
    what: RunRequestKind,
) -> Result<StatusCode, Refusal> {
    let run = services.orchestration.find(id).await?;
    services
        .orchestration
        .ask(run, what, caller.name.as_str())
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
