//! Environments, their deploys, and webhooks.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, Request, State};
use bunraku_wire::api::{
    AssignRequest, Deploy, DeployRequest, DeployStatus, EnvironmentChange, EnvironmentChanged,
    EnvironmentDetail, EnvironmentSummary, HookReply, NewEnvironment, Problem,
};
use http::StatusCode;
use serde::Deserialize;

use super::super::caller::Caller;
use super::super::reply::Refusal;
use super::{Answer, Body, PathEnvironment, PathNode, Services, whole_body};

/// The longest that an answer is held back.
const LONGEST_WAIT: u64 = 60;

#[derive(Deserialize)]
pub(crate) struct Wait {
    #[serde(default)]
    wait_seconds: u64,
}

/// All environments.
#[utoipa::path(get, path = "/v1/environments", tag = "environments",
    responses((status = 200, body = [EnvironmentSummary]), (status = "default", body = Problem)))]
pub(crate) async fn list(State(services): State<Services>) -> Answer<Vec<EnvironmentSummary>> {
    Ok(Json(services.environments.list().await?))
}

/// Make an environment.
#[utoipa::path(post, path = "/v1/environments", tag = "environments", request_body = NewEnvironment,
    responses((status = 200, body = EnvironmentChanged), (status = "default", body = Problem)))]
pub(crate) async fn add(
    State(services): State<Services>,
    Body(new): Body<NewEnvironment>,
) -> Answer<EnvironmentChanged> {
    Ok(Json(services.environments.add(&new).await?))
}

/// One environment, with its deploys and what is wrong now.
#[utoipa::path(get, path = "/v1/environments/{environment}", tag = "environments",
    params(("environment" = String, Path)),
    responses((status = 200, body = EnvironmentDetail), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    PathEnvironment(name): PathEnvironment,
) -> Answer<EnvironmentDetail> {
    Ok(Json(services.environments.show(&name).await?))
}

/// Change an environment.
#[utoipa::path(put, path = "/v1/environments/{environment}", tag = "environments",
    params(("environment" = String, Path)), request_body = EnvironmentChange,
    responses((status = 200, body = EnvironmentChanged), (status = "default", body = Problem)))]
pub(crate) async fn change(
    State(services): State<Services>,
    PathEnvironment(name): PathEnvironment,
    Body(change): Body<EnvironmentChange>,
) -> Answer<EnvironmentChanged> {
    Ok(Json(services.environments.change(&name, &change).await?))
}

/// Forget an environment that no node is in.
#[utoipa::path(delete, path = "/v1/environments/{environment}", tag = "environments",
    params(("environment" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn remove(
    State(services): State<Services>,
    PathEnvironment(name): PathEnvironment,
) -> Result<StatusCode, Refusal> {
    services.environments.remove(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Take code into use.
#[utoipa::path(post, path = "/v1/environments/{environment}/deploys", tag = "environments",
    params(("environment" = String, Path)), request_body = DeployRequest,
    responses((status = 200, body = Deploy), (status = "default", body = Problem)))]
pub(crate) async fn deploy(
    State(services): State<Services>,
    caller: Caller,
    PathEnvironment(name): PathEnvironment,
    Body(request): Body<DeployRequest>,
) -> Answer<Deploy> {
    let by = caller.name.as_str();
    Ok(Json(
        services.environments.deploy(&name, &request, by).await?,
    ))
}

/// Where a deploy stands; held back until it is finished.
#[utoipa::path(get, path = "/v1/environments/{environment}/deploys/{number}", tag = "environments",
    params(("environment" = String, Path), ("number" = u64, Path), ("wait_seconds" = Option<u64>, Query)),
    responses((status = 200, body = DeployStatus), (status = "default", body = Problem)))]
pub(crate) async fn deploy_status(
    State(services): State<Services>,
    PathEnvironment(name): PathEnvironment,
    Path((_, number)): Path<(String, u64)>,
    Query(wait): Query<Wait>,
) -> Answer<DeployStatus> {
    let wait = Duration::from_secs(wait.wait_seconds.min(LONGEST_WAIT));
    let status = services.environments.deploy_status(&name, number, wait);
    Ok(Json(status.await?))
}

/// A push: the body is signed in `X-Hub-Signature-256` with the environment's secret.
#[utoipa::path(post, path = "/v1/hooks/{environment}", tag = "environments",
    params(("environment" = String, Path)), request_body = Object,
    responses((status = 200, body = HookReply), (status = "default", body = Problem)))]
pub(crate) async fn hook(
    State(services): State<Services>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<HookReply> {
    let event = header(request.headers(), "x-github-event");
    let signature = header(request.headers(), "x-hub-signature-256");
    let body = whole_body(request, &()).await?;
    // Who cannot sign learns nothing, not even which names there are.
    let unsigned = || {
        Refusal::unauthenticated(
            "the delivery is not signed with this environment's secret",
            "`X-Hub-Signature-256` is `sha256=` and the body's HMAC-SHA256 in hexadecimal",
        )
    };
    let name = name.parse().map_err(|_| unsigned())?;
    let (event, signature) = (event.as_deref(), signature.as_deref());
    let delivered = services
        .environments
        .deliver(&name, event, signature, &body);
    delivered.await?.map(Json).ok_or_else(unsigned)
}

pub(super) fn header(headers: &http::HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// Give a node to an environment.
#[utoipa::path(put, path = "/v1/nodes/{node}/environment", tag = "nodes", params(("node" = String, Path)),
    request_body = AssignRequest, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn assign(
    State(services): State<Services>,
    PathNode(node): PathNode,
    Body(request): Body<AssignRequest>,
) -> Result<StatusCode, Refusal> {
    let environments = &services.environments;
    environments.assign(&node, &request.environment).await?;
    Ok(StatusCode::NO_CONTENT)
}
