//! The compile queue.

use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_wire::api::Page;
use bunraku_wire::api::{CompileRequested, CompileSelection};
use bunraku_wire::endpoints::{ListCompileQueue, RequestCompiles, ShowCompiles};

use super::longest_wait;
use crate::http::endpoint::{Call, HandlerResult, Routes, cut};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(RequestCompiles, request)
        .add(ListCompileQueue, queue)
        .add(ShowCompiles, statuses)
}

async fn request(call: Call<RequestCompiles>) -> HandlerResult<RequestCompiles> {
    match &call.body {
        CompileSelection::Nodes(nodes) => call.require_nodes(AccessVerb::Deploy, nodes).await?,
        CompileSelection::Environment(environment) => {
            let target = AccessTarget::Environment(environment.clone());
            call.require(AccessVerb::Deploy, target).await?;
        }
        CompileSelection::All => {
            call.require(AccessVerb::Deploy, AccessTarget::Everything)
                .await?;
        }
    }
    if let CompileSelection::Environment(environment) = &call.body {
        call.services.environments.require(environment).await?;
    }
    let nodes = call.services.compiles.request(&call.body).await?;
    Ok(CompileRequested { nodes })
}

async fn queue(call: Call<ListCompileQueue>) -> HandlerResult<ListCompileQueue> {
    let mut queue = call.services.compiles.waiting().await?;
    if let Some(view) = call.view().await? {
        queue.retain(|queued| view.covers_node(&queued.node, Some(&queued.environment)));
    }
    // A cursor is a place in the queue, which moves while it is read.
    let places = queue.into_iter().enumerate().collect();
    let page = cut(&call.page, places, |(place, _)| format!("{place:010}"))?;
    Ok(Page {
        items: page.items.into_iter().map(|(_, queued)| queued).collect(),
        next: page.next,
        total: page.total,
    })
}

async fn statuses(call: Call<ShowCompiles>) -> HandlerResult<ShowCompiles> {
    call.require_nodes(AccessVerb::View, &call.body.nodes)
        .await?;
    let wait = longest_wait(call.body.wait_seconds);
    let statuses = call.services.compiles.statuses(&call.body.nodes, wait);
    Ok(statuses.await?)
}
