//! Facts.

use axum::Json;
use axum::extract::{Query, State};
use bunraku_model::FactSet;
use bunraku_wire::api::{
    FactSetEntry, FactsDifference, FactsReceipt, FactsReply, Problem, SubmissionOrder,
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{Answer, Body, PathNode, Services};

/// Where a submission stands among those of one agent process.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Order {
    /// Made when the agent starts.
    #[param(value_type = Option<String>)]
    session: Option<Uuid>,
    /// Counts up within the session.
    number: Option<u64>,
    /// The one before it was acknowledged.
    #[serde(default)]
    settled: bool,
}

/// Submit a node's facts: a JSON object. The reply means that they are durable.
#[utoipa::path(put, path = "/v1/nodes/{node}/facts", tag = "facts", params(("node" = String, Path), Order),
    request_body = Object, responses((status = 200, body = FactsReceipt), (status = "default", body = Problem)))]
pub(crate) async fn submit(
    State(services): State<Services>,
    PathNode(node): PathNode,
    Query(order): Query<Order>,
    Body(facts): Body<FactSet>,
) -> Answer<FactsReceipt> {
    services.certificates.admit(&node).await?;
    let settled = order.settled;
    let order = order.session.zip(order.number);
    let order = order.map(|(session, number)| SubmissionOrder {
        session,
        number,
        settled,
    });
    let receipt = services.facts.submit(&node, &facts, order).await?;
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

/// The fact sets of a node that can still be read, newest first.
#[utoipa::path(get, path = "/v1/nodes/{node}/facts/history", tag = "facts", params(("node" = String, Path)),
    responses((status = 200, body = Vec<FactSetEntry>), (status = "default", body = Problem)))]
pub(crate) async fn history(
    State(services): State<Services>,
    PathNode(node): PathNode,
) -> Answer<Vec<FactSetEntry>> {
    Ok(Json(services.facts.history(&node).await?))
}

/// Which two fact sets to compare, by id or by how it begins.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Between {
    /// The one before `to` when not given.
    from: Option<String>,
    /// The newest when not given.
    to: Option<String>,
}

/// What changed between two fact sets of a node.
#[utoipa::path(get, path = "/v1/nodes/{node}/facts/difference", tag = "facts", params(("node" = String, Path), Between),
    responses((status = 200, body = FactsDifference), (status = "default", body = Problem)))]
pub(crate) async fn difference(
    State(services): State<Services>,
    PathNode(node): PathNode,
    Query(between): Query<Between>,
) -> Answer<FactsDifference> {
    let (from, to) = (between.from.as_deref(), between.to.as_deref());
    Ok(Json(services.facts.difference(&node, from, to).await?))
}
