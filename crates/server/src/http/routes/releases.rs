//! Releases.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use bunraku_model::{EnvironmentName, ReleaseNumber};
use bunraku_wire::api::{
    CreateRelease, HoldRequest, Problem, ReleaseDetail, ReleaseHold, ReleaseList, ReleaseReply,
    ReleaseState, RollbackRequest,
};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, Body, PathEnvironment, PathNumber, Services};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;
use bunraku_control::ServiceError;

/// The longest that an answer is held back.
const LONGEST_WAIT: u64 = 60;

/// All releases of an environment that are kept, newest first.
#[utoipa::path(get, path = "/v1/releases/{environment}", tag = "releases", params(("environment" = String, Path)),
    responses((status = 200, body = ReleaseList), (status = "default", body = Problem)))]
pub(crate) async fn list(
    State(services): State<Services>,
    PathEnvironment(environment): PathEnvironment,
) -> Answer<ReleaseList> {
    Ok(Json(services.releases.list(&environment).await?))
}

/// Make a release.
#[utoipa::path(post, path = "/v1/releases/{environment}", tag = "releases", params(("environment" = String, Path)),
    request_body = CreateRelease, responses((status = 200, body = ReleaseReply), (status = "default", body = Problem)))]
pub(crate) async fn create(
    State(services): State<Services>,
    caller: Caller,
    PathEnvironment(environment): PathEnvironment,
    Body(request): Body<CreateRelease>,
) -> Answer<ReleaseReply> {
    let by = caller.name.as_str();
    let made = services.releases.create(&environment, &request, by).await?;
    Ok(Json(made))
}

/// How long to hold the answer back.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Wait {
    /// Seconds to wait until the release is applied, at most 60.
    #[serde(default)]
    wait_seconds: u64,
}

/// One release with its map; `current` is the newest.
#[utoipa::path(get, path = "/v1/releases/{environment}/{number}", tag = "releases",
    params(("environment" = String, Path), ("number" = String, Path), Wait),
    responses((status = 200, body = ReleaseDetail), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    PathEnvironment(environment): PathEnvironment,
    PathNumber(number): PathNumber,
    Query(wait): Query<Wait>,
) -> Answer<ReleaseDetail> {
    let number = newest_or(&services, &environment, number).await?;
    let most = Duration::from_secs(wait.wait_seconds.min(LONGEST_WAIT));
    let shown = tokio::select! {
        shown = services.releases.show_applied(&environment, number, most) => shown?,
        () = services.shutdown.cancelled() => services.releases.show(&environment, number).await?,
    };
    if !most.is_zero() && shown.state == ReleaseState::Current {
        // Whoever waited until it is applied finds it so here.
        services.board.catch_up(&shown.map).await?;
    }
    Ok(Json(shown))
}

/// Nothing is released is another answer than no such release.
async fn newest_or(
    services: &Services,
    environment: &EnvironmentName,
    number: Option<ReleaseNumber>,
) -> Result<Option<ReleaseNumber>, Refusal> {
    if number.is_none() && services.releases.newest(environment).await?.is_none() {
        let nothing = ServiceError::NotFound {
            what: format!("a release of `{environment}`"),
            hint: Some(format!(
                "make the first one with `bunraku release create {environment}`"
            )),
        };
        return Err(nothing.into());
    }
    Ok(number)
}

/// Go back to the map of an older release.
#[utoipa::path(post, path = "/v1/releases/{environment}/rollback", tag = "releases",
    params(("environment" = String, Path)), request_body = RollbackRequest,
    responses((status = 200, body = ReleaseReply), (status = "default", body = Problem)))]
pub(crate) async fn rollback(
    State(services): State<Services>,
    caller: Caller,
    PathEnvironment(environment): PathEnvironment,
    Body(request): Body<RollbackRequest>,
) -> Answer<ReleaseReply> {
    let by = caller.name.as_str();
    let made = services
        .releases
        .rollback(&environment, &request, by)
        .await?;
    Ok(Json(made))
}

/// Release nothing by itself in this environment.
#[utoipa::path(put, path = "/v1/releases/{environment}/hold", tag = "releases",
    params(("environment" = String, Path)), request_body = HoldRequest,
    responses((status = 200, body = ReleaseHold), (status = "default", body = Problem)))]
pub(crate) async fn hold(
    State(services): State<Services>,
    caller: Caller,
    PathEnvironment(environment): PathEnvironment,
    Body(request): Body<HoldRequest>,
) -> Answer<ReleaseHold> {
    let by = caller.name.as_str();
    Ok(Json(
        services.releases.hold(&environment, &request, by).await?,
    ))
}

/// End a hold.
#[utoipa::path(delete, path = "/v1/releases/{environment}/hold", tag = "releases",
    params(("environment" = String, Path)), responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn resume(
    State(services): State<Services>,
    PathEnvironment(environment): PathEnvironment,
) -> Result<StatusCode, Refusal> {
    match services.releases.resume(&environment).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ServiceError::NotFound {
            what: format!("a hold on `{environment}`"),
            hint: None,
        }
        .into()),
    }
}
