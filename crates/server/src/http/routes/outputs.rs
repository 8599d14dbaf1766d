//! Outputs that pass from one node to another.

use axum::Json;
use axum::extract::{Query, State};
use bunraku_model::{CatalogId, RunId};
use bunraku_wire::api::Problem;
use bunraku_wire::api::outputs::{NodeReads, OtherNodeOutput};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, PathNode, Services};

/// What every node's released catalog reads of other nodes.
#[utoipa::path(get, path = "/v1/outputs/reads", tag = "outputs",
    responses((status = 200, body = Vec<NodeReads>), (status = "default", body = Problem)))]
pub(crate) async fn reads(State(services): State<Services>) -> Answer<Vec<NodeReads>> {
    Ok(Json(services.outputs.reads().await?))
}

#[derive(Deserialize, IntoParams)]
pub(crate) struct InputsQuery {
    /// The released catalog that is carried out.
    #[param(value_type = String)]
    catalog: CatalogId,
    /// The ordered run that this is a part of.
    #[param(value_type = Option<String>)]
    run: Option<RunId>,
}

/// What a node's catalog reads of other nodes, or why it is not there.
#[utoipa::path(get, path = "/v1/nodes/{node}/inputs", tag = "outputs",
    params(("node" = String, Path), InputsQuery),
    responses((status = 200, body = Vec<OtherNodeOutput>), (status = "default", body = Problem)))]
pub(crate) async fn inputs(
    State(services): State<Services>,
    PathNode(node): PathNode,
    Query(query): Query<InputsQuery>,
) -> Answer<Vec<OtherNodeOutput>> {
    let inputs = services.outputs.inputs(&node, query.catalog, query.run);
    Ok(Json(inputs.await?))
}
