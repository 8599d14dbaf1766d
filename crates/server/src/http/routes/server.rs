//! The status of a server.

use bunraku_model::Role;
use bunraku_model::access::AccessVerb;
use bunraku_wire::api::ServerStatus;
use bunraku_wire::endpoints::{self, ShowOpenApi, ShowServer};

use crate::fleet_capacity::Engines;
use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::permit::Permit;
use crate::http::reply::ErrorReply;
use crate::http::routes::history::status_of;
use crate::space_status::space_status;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(ShowServer, show).add(ShowOpenApi, openapi)
}

async fn show(call: Call<ShowServer>) -> HandlerResult<ShowServer> {
    // How many other nodes there are is none of a node's business.
    let (connected_agents, leads) = if is_informed(&call).await? {
        (
            call.services.presence.connected(),
            call.services.orchestration.led_here().await?,
        )
    } else {
        (0, Vec::new())
    };
    let (space, s3_problem) = match call.caller()?.role {
        Role::Node => (None, None),
        Role::Operator | Role::Server => (
            space_status(&call.services.store),
            call.services.placement.s3_problem(),
        ),
    };
    let (capacity, history) = match call.caller()?.role {
        Role::Node => (None, None),
        Role::Operator | Role::Server => {
            let state = call.services.reports.history_state().await?;
            let place = call.services.placement.active();
            let engines = Engines::of(call.services.identity.store, place, state.active);
            let nodes = call.services.metrics.fleet.nodes().unwrap_or(0);
            (engines.advice(nodes), Some(status_of(state)))
        }
    };
    Ok(ServerStatus {
        id: call.services.identity.id,
        name: Some(call.services.identity.name.clone()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: call.services.identity.started,
        now: Some(call.services.clock.now()),
        store: call.services.identity.store.to_owned(),
        connected_agents,
        leads,
        ca_fingerprint: call.services.certificates.ca_fingerprint(),
        space,
        s3_problem,
        capacity,
        history,
    })
}

/// Returns whether the caller may know how many nodes there are, and which runs.
async fn is_informed(call: &Call<ShowServer>) -> Result<bool, ErrorReply> {
    let caller = call.caller()?;
    match caller.role {
        Role::Node => Ok(false),
        Role::Server => Ok(true),
        Role::Operator => {
            let access = &call.services.access;
            let known = access.newest(true).await?;
            let permit = Permit::new(access, known, caller.operator());
            permit.is_everything(AccessVerb::View).await
        }
    }
}

async fn openapi(_: Call<ShowOpenApi>) -> HandlerResult<ShowOpenApi> {
    Ok(endpoints::openapi_document())
}
