//! The status of a server.

use bunraku_model::Role;
use bunraku_wire::api::ServerStatus;
use bunraku_wire::endpoints::{self, ShowOpenApi, ShowServer};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(ShowServer, show).add(ShowOpenApi, openapi)
}

async fn show(call: Call<ShowServer>) -> HandlerResult<ShowServer> {
    // How many other nodes there are is none of a node's business.
    let connected_agents = match call.caller()?.role {
        Role::Node => 0,
        Role::Operator | Role::Server => call.services.presence.connected(),
    };
    Ok(ServerStatus {
        id: call.services.identity.id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: call.services.identity.started,
        store: call.services.identity.store.to_owned(),
        connected_agents,
        ca_fingerprint: call.services.certificates.ca_fingerprint(),
    })
}

async fn openapi(_: Call<ShowOpenApi>) -> HandlerResult<ShowOpenApi> {
    Ok(endpoints::openapi_document())
}
