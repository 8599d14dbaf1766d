//! Catalogs and the differences between them.

use bunraku_wire::endpoints::{
    CompareCatalogs, CompareReleases, CompareWithPuppet, ListCatalogs, ProposeCatalogs, ShowCatalog,
};

use super::targets;
use crate::http::endpoint::{Call, HandlerResult, Routes};

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
    if let Some(environment) = environment {
        call.services.environments.require(environment).await?;
    }
    if let Some(node) = node {
        call.services.nodes.require(node).await?;
    }
    Ok(call.services.diffs.list(environment, node).await?)
}

async fn show(call: Call<ShowCatalog>) -> HandlerResult<ShowCatalog> {
    targets::send_catalog(&call.services, call.path, &call.method, &call.headers).await
}

async fn diff(call: Call<CompareCatalogs>) -> HandlerResult<CompareCatalogs> {
    Ok(call
        .services
        .diffs
        .between(call.query.before, call.path)
        .await?)
}

async fn proposed(call: Call<ProposeCatalogs>) -> HandlerResult<ProposeCatalogs> {
    let (environments, compiles) = (&call.services.environments, &call.services.compiles);
    let diff = call
        .services
        .diffs
        .proposed(environments, compiles, &call.body);
    Ok(diff.await?)
}

async fn compare_puppet(call: Call<CompareWithPuppet>) -> HandlerResult<CompareWithPuppet> {
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
