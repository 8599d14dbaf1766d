//! Nodes.

use axum::Json;
use axum::extract::State;
use bunraku_wire::api::{
    ActivityReceipt, ActivityReport, DisableRequest, NodeQueue, NodeSummary, Problem, QueueReport,
    RevokeRequest,
};
use http::StatusCode;

use super::{Answer, Body, PathNode, Services};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;
use bunraku_control::ServiceError;

/// All nodes, by name.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes",
    responses((status = 200, body = Vec<NodeSummary>), (status = "default", body = Problem)))]
pub(crate) async fn list(State(services): State<Services>) -> Answer<Vec<NodeSummary>> {
    Ok(Json(services.nodes.list().await?))
}

/// One node.
#[utoipa::path(get, path = "/v1/nodes/{node}", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeSummary), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    PathNode(node): PathNode,
) -> Answer<NodeSummary> {
    Ok(Json(services.nodes.show(&node).await?))
}

/// Forget a node: its certificates are revoked, its documents deleted.
#[utoipa::path(delete, path = "/v1/nodes/{node}", tag = "nodes", params(("node" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn remove(
    State(services): State<Services>,
    caller: Caller,
    PathNode(node): PathNode,
) -> Result<StatusCode, Refusal> {
    if !services.nodes.exists(&node).await? {
        return Err(ServiceError::no_such_node(&node).into());
    }
    let revoke = RevokeRequest {
        reason: "the node was removed".to_owned(),
        serial: None,
    };
    match services
        .certificates
        .revoke(&node, &revoke, caller.name.as_str())
        .await
    {
        Ok(_) | Err(ServiceError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    services.hub.disconnect(&node);
    services.reports.forget(&node).await?;
    // A submission that was under way may bring facts back until the record goes.
    loop {
        services.facts.forget(&node).await?;
        if services.nodes.remove(&node).await? {
            break;
        }
    }
    // After its record: nothing is compiled for a node without one.
    services.compiles.forget(&node).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Take a node out of service.
#[utoipa::path(post, path = "/v1/nodes/{node}/disable", tag = "nodes", params(("node" = String, Path)),
    request_body = DisableRequest, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn disable(
    State(services): State<Services>,
    caller: Caller,
    PathNode(node): PathNode,
    Body(request): Body<DisableRequest>,
) -> Result<StatusCode, Refusal> {
    services
        .nodes
        .disable(&node, &request.reason, caller.name.as_str())
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Put a node back into service.
#[utoipa::path(post, path = "/v1/nodes/{node}/enable", tag = "nodes", params(("node" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn enable(
    State(services): State<Services>,
    caller: Caller,
    PathNode(node): PathNode,
) -> Result<StatusCode, Refusal> {
    services.nodes.enable(&node, caller.name.as_str()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What the node does now, by its own word.
#[utoipa::path(put, path = "/v1/nodes/{node}/activity", tag = "nodes", params(("node" = String, Path)),
    request_body = ActivityReport, responses((status = 200, body = ActivityReceipt), (status = "default", body = Problem)))]
pub(crate) async fn report_activity(
    State(services): State<Services>,
    PathNode(node): PathNode,
    Body(report): Body<ActivityReport>,
) -> Answer<ActivityReceipt> {
    let receipt = services
        .nodes
        .report_activity(&node, &report.activity)
        .await?;
    Ok(Json(receipt))
}

/// The node's run queue, by its own word.
#[utoipa::path(put, path = "/v1/nodes/{node}/queue", tag = "nodes", params(("node" = String, Path)),
    request_body = QueueReport, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn report_queue(
    State(services): State<Services>,
    PathNode(node): PathNode,
    Body(queue): Body<QueueReport>,
) -> Result<StatusCode, Refusal> {
    services.nodes.report_queue(&node, &queue).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What the node runs, what waits there, and why.
#[utoipa::path(get, path = "/v1/nodes/{node}/queue", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeQueue), (status = "default", body = Problem)))]
pub(crate) async fn queue(
    State(services): State<Services>,
    PathNode(node): PathNode,
) -> Answer<NodeQueue> {
    Ok(Json(services.nodes.queue(&node).await?))
}
