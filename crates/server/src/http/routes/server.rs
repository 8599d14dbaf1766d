//! What a server says of itself.

use axum::Json;
use axum::extract::State;
use bunraku_wire::api::{Problem, ServerStatus};

use super::{Answer, Services};

/// This server.
#[utoipa::path(get, path = "/v1/server", tag = "server",
    responses((status = 200, body = ServerStatus), (status = "default", body = Problem)))]
pub(crate) async fn show(State(services): State<Services>) -> Answer<ServerStatus> {
    Ok(Json(ServerStatus {
        id: services.identity.id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: services.identity.started,
        store: services.identity.store.to_owned(),
        connected_agents: services.presence.connected(),
        ca_fingerprint: services.certificates.ca_fingerprint(),
    }))
}

/// The description of this API.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "server", responses((status = 200, body = Object)))]
pub(crate) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(crate::http::openapi_document())
}
