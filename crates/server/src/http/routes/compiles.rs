//! The compile queue.

use bunraku_wire::api::{CompileRequested, CompileSelection};
use bunraku_wire::endpoints::{ListCompileQueue, RequestCompiles, ShowCompiles};

use super::longest_wait;
use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(RequestCompiles, request)
        .add(ListCompileQueue, queue)
        .add(ShowCompiles, statuses)
}

async fn request(call: Call<RequestCompiles>) -> HandlerResult<RequestCompiles> {
    if let CompileSelection::Environment(environment) = &call.body {
        call.services.environments.require(environment).await?;
    }
    let nodes = call.services.compiles.request(&call.body).await?;
    Ok(CompileRequested { nodes })
}

async fn queue(call: Call<ListCompileQueue>) -> HandlerResult<ListCompileQueue> {
    Ok(call.services.compiles.waiting().await?)
}

async fn statuses(call: Call<ShowCompiles>) -> HandlerResult<ShowCompiles> {
    let wait = longest_wait(call.body.wait_seconds);
    let statuses = call.services.compiles.statuses(&call.body.nodes, wait);
    Ok(statuses.await?)
}
