//! Locks.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use bunraku_model::LockName;
use bunraku_wire::api::Problem;
use bunraku_wire::api::locks::{
    AcquireLock, BreakLock, DefineLock, LeaveLine, LockReply, LockStatus, LockToken,
};
use http::StatusCode;
use http::request::Parts;

use super::{Answer, Body, Services};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;

/// The longest that an answer is held back.
const LONGEST_WAIT: u64 = 60;

/// The lock in the path.
pub(crate) struct PathLock(LockName);

impl<S: Send + Sync> FromRequestParts<S> for PathLock {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        super::path_parameter(parts, state, &["lock"])
            .await
            .map(Self)
    }
}

/// All locks, with who holds them.
#[utoipa::path(get, path = "/v1/locks", tag = "locks",
    responses((status = 200, body = Vec<LockStatus>), (status = "default", body = Problem)))]
pub(crate) async fn list(State(services): State<Services>) -> Answer<Vec<LockStatus>> {
    Ok(Json(services.locks.list().await?))
}

/// One lock, with who holds it and who waits.
#[utoipa::path(get, path = "/v1/locks/{lock}", tag = "locks", params(("lock" = String, Path)),
    responses((status = 200, body = LockStatus), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    PathLock(name): PathLock,
) -> Answer<LockStatus> {
    Ok(Json(services.locks.show(&name).await?))
}

/// How many may hold it, and what is fired when the holders change.
#[utoipa::path(put, path = "/v1/locks/{lock}", tag = "locks", params(("lock" = String, Path)),
    request_body = DefineLock, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn define(
    State(services): State<Services>,
    PathLock(name): PathLock,
    Body(request): Body<DefineLock>,
) -> Result<StatusCode, Refusal> {
    services.locks.define(&name, &request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Take a lock, or wait in line for it.
#[utoipa::path(post, path = "/v1/locks/{lock}/acquire", tag = "locks", params(("lock" = String, Path)),
    request_body = AcquireLock, responses((status = 200, body = LockReply), (status = "default", body = Problem)))]
pub(crate) async fn acquire(
    State(services): State<Services>,
    caller: Caller,
    PathLock(name): PathLock,
    Body(request): Body<AcquireLock>,
) -> Answer<LockReply> {
    let owner = caller.name.as_str();
    let most = Duration::from_secs(request.wait_seconds.min(LONGEST_WAIT));
    let locks = &services.locks;
    let reply = tokio::select! {
        reply = locks.acquire(&name, owner, &request, most) => reply?,
        () = services.shutdown.cancelled() => locks.acquire(&name, owner, &request, Duration::ZERO).await?,
    };
    Ok(Json(reply))
}

/// A sign of life from the holder.
#[utoipa::path(put, path = "/v1/locks/{lock}/lease", tag = "locks", params(("lock" = String, Path)),
    request_body = LockToken, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn renew(
    State(services): State<Services>,
    caller: Caller,
    PathLock(name): PathLock,
    Body(request): Body<LockToken>,
) -> Result<StatusCode, Refusal> {
    let renewed = services
        .locks
        .renew(&name, caller.name.as_str(), request.token);
    renewed.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Give a lock back.
#[utoipa::path(post, path = "/v1/locks/{lock}/release", tag = "locks", params(("lock" = String, Path)),
    request_body = LockToken, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn release(
    State(services): State<Services>,
    caller: Caller,
    PathLock(name): PathLock,
    Body(request): Body<LockToken>,
) -> Result<StatusCode, Refusal> {
    let released = services
        .locks
        .release(&name, caller.name.as_str(), request.token);
    released.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Give a place in line back.
#[utoipa::path(post, path = "/v1/locks/{lock}/leave", tag = "locks", params(("lock" = String, Path)),
    request_body = LeaveLine, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn leave(
    State(services): State<Services>,
    caller: Caller,
    PathLock(name): PathLock,
    Body(request): Body<LeaveLine>,
) -> Result<StatusCode, Refusal> {
    let left = services
        .locks
        .leave(&name, caller.name.as_str(), &request.session);
    left.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Take a lock away from its holder.
#[utoipa::path(post, path = "/v1/locks/{lock}/break", tag = "locks", params(("lock" = String, Path)),
    request_body = BreakLock, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn break_lock(
    State(services): State<Services>,
    caller: Caller,
    PathLock(name): PathLock,
    Body(request): Body<BreakLock>,
) -> Result<StatusCode, Refusal> {
    let locks = &services.locks;
    locks
        .break_lock(&name, request.token, &request.reason, caller.name.as_str())
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
