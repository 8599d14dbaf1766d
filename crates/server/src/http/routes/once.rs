//! Things that are done once.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, Query, State};
use bunraku_model::AppName;
use bunraku_wire::api::Problem;
use bunraku_wire::api::once::{
    Attempt, ClaimOnce, ClaimReply, ContributeFragment, DefineOnce, FinishClaim, KeepClaim,
    OnceReport, OnceStanding, OnceSummary, ResetOnce, StatOnce,
};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, Body, PathNode, Services};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;
use bunraku_cues::once::Asker;

/// The longest that an answer is held back.
const LONGEST_WAIT: u64 = 60;

/// The thing in the path.
pub(crate) struct PathApp(AppName);

impl<S: Send + Sync> FromRequestParts<S> for PathApp {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        super::path_parameter(parts, state, &["app"])
            .await
            .map(Self)
    }
}

/// The fencing token in the path.
pub(crate) struct PathToken(u64);

impl<S: Send + Sync> FromRequestParts<S> for PathToken {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        super::path_parameter(parts, state, &["token"])
            .await
            .map(Self)
    }
}

fn asker(caller: &Caller) -> Asker<'_> {
    Asker {
        name: &caller.name,
        role: caller.role,
    }
}

/// How to judge.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Judge {
    /// As if a failed attempt might be repeated.
    #[serde(default)]
    retry: bool,
}

/// Would an init by the caller be accepted now? Changes nothing.
#[utoipa::path(get, path = "/v1/once/{app}/standing", tag = "once", params(("app" = String, Path), Judge),
    responses((status = 200, body = OnceStanding), (status = "default", body = Problem)))]
pub(crate) async fn standing(
    State(services): State<Services>,
    caller: Caller,
    PathApp(app): PathApp,
    Query(judge): Query<Judge>,
) -> Answer<OnceStanding> {
    let request = StatOnce {
        definition: None,
        retry: judge.retry,
    };
    let standing = services.once.standing(&app, asker(&caller), &request);
    Ok(Json(standing.await?))
}

/// The same, with a definition that is not kept. Changes nothing.
#[utoipa::path(post, path = "/v1/once/{app}/standing", tag = "once", params(("app" = String, Path)),
    request_body = StatOnce, responses((status = 200, body = OnceStanding), (status = "default", body = Problem)))]
pub(crate) async fn standing_with(
    State(services): State<Services>,
    caller: Caller,
    PathApp(app): PathApp,
    Body(request): Body<StatOnce>,
) -> Answer<OnceStanding> {
    let standing = services.once.standing(&app, asker(&caller), &request);
    Ok(Json(standing.await?))
}

/// All things that are done once.
#[utoipa::path(get, path = "/v1/once", tag = "once",
    responses((status = 200, body = Vec<OnceSummary>), (status = "default", body = Problem)))]
pub(crate) async fn list(
    State(services): State<Services>,
    caller: Caller,
) -> Answer<Vec<OnceSummary>> {
    Ok(Json(services.once.list(asker(&caller)).await?))
}

/// One of them, with its history.
#[utoipa::path(get, path = "/v1/once/{app}", tag = "once", params(("app" = String, Path)),
    responses((status = 200, body = OnceReport), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    caller: Caller,
    PathApp(app): PathApp,
) -> Answer<OnceReport> {
    Ok(Json(services.once.show(&app, asker(&caller)).await?))
}

/// Put a definition in place.
#[utoipa::path(put, path = "/v1/once/{app}/definition", tag = "once", params(("app" = String, Path)),
    request_body = DefineOnce, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn define(
    State(services): State<Services>,
    caller: Caller,
    PathApp(app): PathApp,
    Body(request): Body<DefineOnce>,
) -> Result<StatusCode, Refusal> {
    services.once.define(&app, asker(&caller), &request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A host's own part of a definition.
#[utoipa::path(put, path = "/v1/once/{app}/fragments/{node}", tag = "once",
    params(("app" = String, Path), ("node" = String, Path)),
    request_body = ContributeFragment, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn contribute(
    State(services): State<Services>,
    PathApp(app): PathApp,
    PathNode(host): PathNode,
    Body(request): Body<ContributeFragment>,
) -> Result<StatusCode, Refusal> {
    let contributed = services.once.contribute(&app, &host, &request.fragment);
    contributed.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Take a host's part back.
#[utoipa::path(delete, path = "/v1/once/{app}/fragments/{node}", tag = "once",
    params(("app" = String, Path), ("node" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn withdraw(
    State(services): State<Services>,
    PathApp(app): PathApp,
    PathNode(host): PathNode,
) -> Result<StatusCode, Refusal> {
    services.once.withdraw(&app, &host).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Claim a thing: of all who ask, one gets it.
#[utoipa::path(post, path = "/v1/once/{app}/claims", tag = "once", params(("app" = String, Path)),
    request_body = ClaimOnce, responses((status = 200, body = ClaimReply), (status = "default", body = Problem)))]
pub(crate) async fn claim(
    State(services): State<Services>,
    caller: Caller,
    PathApp(app): PathApp,
    Body(request): Body<ClaimOnce>,
) -> Answer<ClaimReply> {
    let reply = services.once.claim(&app, asker(&caller), &request).await?;
    Ok(Json(reply))
}

/// A sign of life from the claimant.
#[utoipa::path(put, path = "/v1/once/{app}/claims/{token}", tag = "once",
    params(("app" = String, Path), ("token" = u64, Path)),
    request_body = KeepClaim, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn keep(
    State(services): State<Services>,
    caller: Caller,
    PathApp(app): PathApp,
    PathToken(token): PathToken,
    Body(request): Body<KeepClaim>,
) -> Result<StatusCode, Refusal> {
    let kept = services.once.keep(&app, token, asker(&caller), &request);
    kept.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The claimant's outcome.
#[utoipa::path(put, path = "/v1/once/{app}/claims/{token}/outcome", tag = "once",
    params(("app" = String, Path), ("token" = u64, Path)),
    request_body = FinishClaim, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn finish(
    State(services): State<Services>,
    caller: Caller,
    PathApp(app): PathApp,
    PathToken(token): PathToken,
    Body(request): Body<FinishClaim>,
) -> Result<StatusCode, Refusal> {
    let finished = services.once.finish(&app, token, asker(&caller), &request);
    finished.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How long to hold the answer back.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Wait {
    /// Seconds to wait for the end of the attempt, at most 60.
    #[serde(default)]
    wait_seconds: u64,
}

/// One attempt, once it has ended.
#[utoipa::path(get, path = "/v1/once/{app}/attempts/{token}", tag = "once",
    params(("app" = String, Path), ("token" = u64, Path), Wait),
    responses((status = 200, body = Attempt), (status = "default", body = Problem)))]
pub(crate) async fn attempt(
    State(services): State<Services>,
    PathApp(app): PathApp,
    PathToken(token): PathToken,
    Query(wait): Query<Wait>,
) -> Answer<Attempt> {
    let most = Duration::from_secs(wait.wait_seconds.min(LONGEST_WAIT));
    let attempt = tokio::select! {
        attempt = services.once.wait(&app, token, most) => attempt?,
        () = services.shutdown.cancelled() => services.once.wait(&app, token, Duration::ZERO).await?,
    };
    Ok(Json(attempt))
}

/// Let a thing be done again.
#[utoipa::path(post, path = "/v1/once/{app}/reset", tag = "once", params(("app" = String, Path)),
    request_body = ResetOnce, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn reset(
    State(services): State<Services>,
    caller: Caller,
    PathApp(app): PathApp,
    Body(request): Body<ResetOnce>,
) -> Result<StatusCode, Refusal> {
    let reset = services.once.reset(&app, &request, caller.name.as_str());
    reset.await?;
    Ok(StatusCode::NO_CONTENT)
}
