//! Facts.

use axum::Json;
use axum::extract::State;
use bunraku_model::FactSet;
use bunraku_wire::api::{FactsReceipt, FactsReply, Problem};

use super::{Answer, Body, PathNode, Services};

/// Submit a node's facts: a JSON object.
#[utoipa::path(put, path = "/v1/nodes/{node}/facts", tag = "facts", params(("node" = String, Path)),
    request_body = Object, responses((status = 200, body = FactsReceipt), (status = "default", body = Problem)))]
pub(crate) async fn submit(
    State(services): State<Services>,
    PathNode(node): PathNode,
    Body(facts): Body<FactSet>,
) -> Answer<FactsReceipt> {
    services.certificates.admit(&node).await?;
    let receipt = services.facts.submit(&node, &facts).await?;
    services.metrics.facts_submitted(receipt.changed);
    Ok(Json(receipt))
}

/// The newest facts of a node.
#[utoipa::path(get, path = "/v1/nodes/{node}/facts", tag = "facts", params(("node" = String, Path)),
    responses((status = 200, body = FactsReply), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    PathNode(node): PathNode,
) -> Answer<FactsReply> {
    Ok(Json(services.facts.show(&node).await?))
}
