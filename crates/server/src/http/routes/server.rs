//! The status of a server.

use bunraku_wire::api::ServerStatus;
use bunraku_wire::endpoints::{self, ShowOpenApi, ShowServer};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(ShowServer, show).add(ShowOpenApi, openapi)
}

async fn show(call: Call<ShowServer>) -> HandlerResult<ShowServer> {
    Ok(ServerStatus {
        id: call.services.identity.id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: call.services.identity.started,
        store: call.services.identity.store.to_owned(),
        connected_agents: call.services.presence.connected(),
        ca_fingerprint: call.services.certificates.ca_fingerprint(),
    })
}

async fn openapi(_: Call<ShowOpenApi>) -> HandlerResult<ShowOpenApi> {
    Ok(endpoints::openapi_document())
}
