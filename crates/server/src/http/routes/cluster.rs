//! The servers among themselves.

use axum::Json;
use axum::extract::State;
use bunraku_wire::api::Problem;
use bunraku_wire::api::cluster::{
    ClusterInvitation, ClusterInviteRequest, ClusterJoinRequest, ClusterSshJoinRequest,
    ClusterSshWelcome, ClusterStatus, ClusterWelcome, DrainRequest, ServerList,
};
use http::StatusCode;

use super::{Answer, Body, PathNode, Services};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;

/// The cluster, as this server sees it.
#[utoipa::path(get, path = "/v1/cluster", tag = "cluster",
    responses((status = 200, body = ClusterStatus), (status = "default", body = Problem)))]
pub(crate) async fn status(State(services): State<Services>) -> Answer<ClusterStatus> {
    Ok(Json(services.cluster.status().await?))
}

/// All servers that nodes and operators can go to.
#[utoipa::path(get, path = "/v1/servers", tag = "cluster",
    responses((status = 200, body = ServerList), (status = "default", body = Problem)))]
pub(crate) async fn servers(State(services): State<Services>) -> Answer<ServerList> {
    Ok(Json(services.cluster.servers()))
}

/// Make a one-time token for a server. It is shown only in this reply.
#[utoipa::path(post, path = "/v1/cluster/invitations", tag = "cluster", request_body = ClusterInviteRequest,
    responses((status = 200, body = ClusterInvitation), (status = "default", body = Problem)))]
pub(crate) async fn invite(
    State(services): State<Services>,
    caller: Caller,
    Body(request): Body<ClusterInviteRequest>,
) -> Answer<ClusterInvitation> {
    let by = caller.name.as_str();
    Ok(Json(services.cluster.invite(&request, by).await?))
}

/// Become a member, with a token.
#[utoipa::path(post, path = "/v1/cluster/join", tag = "cluster", request_body = ClusterJoinRequest,
    responses((status = 200, body = ClusterWelcome), (status = "default", body = Problem)))]
pub(crate) async fn join(
    State(services): State<Services>,
    Body(request): Body<ClusterJoinRequest>,
) -> Answer<ClusterWelcome> {
    Ok(Json(services.cluster.join(&request).await?))
}

/// Become a member that this server verifies over SSH. What a member needs is
/// put in its place over SSH, not into the reply.
#[utoipa::path(post, path = "/v1/cluster/join-over-ssh", tag = "cluster", request_body = ClusterSshJoinRequest,
    responses((status = 200, body = ClusterSshWelcome), (status = "default", body = Problem)))]
pub(crate) async fn join_over_ssh(
    State(services): State<Services>,
    Body(request): Body<ClusterSshJoinRequest>,
) -> Answer<ClusterSshWelcome> {
    Ok(Json(services.cluster.join_over_ssh(&request).await?))
}

/// Take a server off the list for good. It keeps no data, and does not run.
#[utoipa::path(delete, path = "/v1/cluster/members/{name}", tag = "cluster", params(("name" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn remove(
    State(services): State<Services>,
    caller: Caller,
    PathNode(name): PathNode,
) -> Result<StatusCode, Refusal> {
    services.cluster.remove(&name, caller.name.as_str()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Move a server's role away, or stop doing so.
#[utoipa::path(post, path = "/v1/cluster/members/{name}/drain", tag = "cluster", params(("name" = String, Path)), request_body = DrainRequest,
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn drain(
    State(services): State<Services>,
    PathNode(name): PathNode,
    Body(request): Body<DrainRequest>,
) -> Result<StatusCode, Refusal> {
    services.cluster.drain(&name, &request).await?;
    Ok(StatusCode::NO_CONTENT)
}
