//! Queries.

use axum::Json;
use axum::extract::State;
use bunraku_wire::api::{Problem, QueryNodes, QueryReply, QueryRequest};

use super::{Answer, Body, Services};

/// Ask about nodes, facts, resources, classes, reports and events.
#[utoipa::path(post, path = "/v1/query", tag = "queries", request_body = QueryRequest,
    responses((status = 200, body = QueryReply), (status = "default", body = Problem)))]
pub(crate) async fn query(
    State(services): State<Services>,
    Body(request): Body<QueryRequest>,
) -> Answer<QueryReply> {
    let answer = services.queries.answer(&request.query).await?;
    Ok(Json(QueryReply {
        rows: answer.objects(),
        columns: answer.columns,
        warnings: answer.warnings,
    }))
}

/// The nodes that a query names: those of any row that it finds.
#[utoipa::path(post, path = "/v1/query/nodes", tag = "queries", request_body = QueryRequest,
    responses((status = 200, body = QueryNodes), (status = "default", body = Problem)))]
pub(crate) async fn nodes(
    State(services): State<Services>,
    Body(request): Body<QueryRequest>,
) -> Answer<QueryNodes> {
    let nodes = services.queries.nodes_matching(&request.query).await?;
    Ok(Json(QueryNodes { nodes }))
}
