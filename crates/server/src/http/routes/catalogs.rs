//! Catalogs and the differences between them.

use bunraku_compile::catalogs::CatalogError;
use bunraku_control::ServiceError;
use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_model::{CatalogId, NodeName};
use bunraku_wire::endpoints::{
    CompareCatalogs, CompareReleases, CompareWithPuppet, Endpoint, ListCatalogs, ProposeCatalogs,
    ShowCatalog,
};

use super::targets;
use crate::http::endpoint::{Call, HandlerResult, Receive, Routes, cut};
use crate::http::reply::ErrorReply;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListCatalogs, list)
        .add(ShowCatalog, show)
        .add(CompareCatalogs, diff)
        .add(ProposeCatalogs, proposed)
        .add(CompareWithPuppet, compare_puppet)
        .add(CompareReleases, between_releases)
}

async fn list(call: Call<ListCatalogs>) -> HandlerResult<ListCatalogs> {
    let (environment, node) = (call.query.environment.as_ref(), call.query.node.as_ref());
    let view = call.view().await?;
    if let (Some(environment), None) = (environment, &view) {
        call.services.environments.require(environment).await?;
    }
    if let Some(node) = node {
        call.require_nodes(AccessVerb::View, [node]).await?;
        call.services.nodes.require(node).await?;
    }
    let mut catalogs = call.services.diffs.list(environment, node).await?;
    if let Some(view) = view {
        catalogs.retain(|catalog| view.covers_node(&catalog.node, Some(&catalog.environment)));
    }
    cut(&call.page, catalogs, |catalog| catalog.node.to_string())
}

async fn show(call: Call<ShowCatalog>) -> HandlerResult<ShowCatalog> {
    let id = call.path;
    let node = require_view(&call, id).await?;
    let secrets = call.may_view_secrets(&node).await?;
    targets::send_catalog(&call.services, id, &call.method, &call.headers, secrets).await
}

/// Refuses an operator who may not view a catalog, and returns its node. To somebody with limits,
/// a catalog that does not exist is refused like one that must not be seen.
async fn require_view<E>(call: &Call<E>, id: CatalogId) -> Result<NodeName, ErrorReply>
where
    E: Endpoint<Request: Receive>,
{
    let view = call.view().await?;
    let record = call.services.catalogs.record(id).await;
    let record = record.map_err(ServiceError::from)?;
    match (record, view) {
        (Some(record), None) => Ok(record.node),
        (Some(record), Some(_)) => {
            let checked = call.require_nodes(AccessVerb::View, [&record.node]).await;
            checked.map_err(|_| hidden(id)).map(|()| record.node)
        }
        (None, Some(_)) => Err(hidden(id)),
        (None, None) => Err(ServiceError::from(CatalogError::Missing(id)).into()),
    }
}

fn hidden(id: CatalogId) -> ErrorReply {
    ErrorReply::forbidden(&format!("you may not view a catalog with the id `{id}`"))
        .with_hint("list the catalogs that you may view with `bunraku catalog list`".to_owned())
}

async fn diff(call: Call<CompareCatalogs>) -> HandlerResult<CompareCatalogs> {
    require_view(&call, call.query.before).await?;
    require_view(&call, call.path).await?;
    Ok(call
        .services
        .diffs
        .between(call.query.before, call.path)
        .await?)
}

async fn proposed(call: Call<ProposeCatalogs>) -> HandlerResult<ProposeCatalogs> {
    let target = AccessTarget::Environment(call.body.environment.clone());
    call.require(AccessVerb::Deploy, target.clone()).await?;
    call.require(AccessVerb::View, target).await?;
    let (environments, compiles) = (&call.services.environments, &call.services.compiles);
    let diff = call
        .services
        .diffs
        .proposed(environments, compiles, &call.body);
    Ok(diff.await?)
}

async fn compare_puppet(call: Call<CompareWithPuppet>) -> HandlerResult<CompareWithPuppet> {
    call.require_nodes(AccessVerb::Deploy, [&call.body.node])
        .await?;
    call.require_nodes(AccessVerb::View, [&call.body.node])
        .await?;
    let compared = call.services.compiles.compare_with_puppet(&call.body.node);
    Ok(compared.await?)
}

async fn between_releases(call: Call<CompareReleases>) -> HandlerResult<CompareReleases> {
    call.services.environments.require(&call.path).await?;
    let diff = if call.query.held {
        call.services.diffs.held(&call.path).await?
    } else {
        let diffs = &call.services.diffs;
        diffs
            .between_releases(&call.path, call.query.before, call.query.after)
            .await?
    };
    Ok(diff)
}
