//! The compile queue.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use bunraku_wire::api::{
    CompileRequested, CompileSelection, CompileStatus, CompileStatusRequest, Problem, QueuedCompile,
};

use super::{Answer, Body, Services};

/// The longest that an answer is held back.
const LONGEST_WAIT: u64 = 60;

/// Put nodes into the queue.
#[utoipa::path(post, path = "/v1/compiles", tag = "compiles", request_body = CompileSelection,
    responses((status = 200, body = CompileRequested), (status = "default", body = Problem)))]
pub(crate) async fn request(
    State(services): State<Services>,
    Body(selection): Body<CompileSelection>,
) -> Answer<CompileRequested> {
    let nodes = services.compiles.request(&selection).await?;
    Ok(Json(CompileRequested { nodes }))
}

/// What waits, in the order of its turn.
#[utoipa::path(get, path = "/v1/compiles/queue", tag = "compiles",
    responses((status = 200, body = [QueuedCompile]), (status = "default", body = Problem)))]
pub(crate) async fn queue(State(services): State<Services>) -> Answer<Vec<QueuedCompile>> {
    Ok(Json(services.compiles.waiting().await?))
}

/// How compiling nodes went; held back until none of them waits.
#[utoipa::path(post, path = "/v1/compiles/status", tag = "compiles", request_body = CompileStatusRequest,
    responses((status = 200, body = [CompileStatus]), (status = "default", body = Problem)))]
pub(crate) async fn statuses(
    State(services): State<Services>,
    Body(request): Body<CompileStatusRequest>,
) -> Answer<Vec<CompileStatus>> {
    let wait = Duration::from_secs(request.wait_seconds.min(LONGEST_WAIT));
    let statuses = services.compiles.statuses(&request.nodes, wait);
    Ok(Json(statuses.await?))
}
