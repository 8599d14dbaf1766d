//! Catalogs: what is kept, and what differs.

use axum::Json;
use axum::extract::{Query, State};
use axum::response::Response;
use bunraku_model::{CatalogId, EnvironmentName, NodeName, ReleaseNumber};
use bunraku_wire::api::{CatalogDiffReply, CatalogSummary, FleetDiff, FleetDiffRequest, Problem};
use http::{HeaderMap, Method};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, Body, PathEnvironment, PathId, Services, targets};
use crate::http::reply::Refusal;

/// Which ones.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Which {
    #[param(value_type = Option<String>)]
    environment: Option<EnvironmentName>,
    #[param(value_type = Option<String>)]
    node: Option<NodeName>,
}

/// Where the catalogs of nodes stand: released, held, outdated.
#[utoipa::path(get, path = "/v1/catalogs", tag = "catalogs", params(Which),
    responses((status = 200, body = Vec<CatalogSummary>), (status = "default", body = Problem)))]
pub(crate) async fn list(
    State(services): State<Services>,
    Query(which): Query<Which>,
) -> Answer<Vec<CatalogSummary>> {
    let (environment, node) = (which.environment.as_ref(), which.node.as_ref());
    Ok(Json(services.diffs.list(environment, node).await?))
}

/// A catalog, whichever node's it is.
#[utoipa::path(get, path = "/v1/catalogs/{id}", tag = "catalogs", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    PathId(id): PathId<CatalogId>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    targets::send_catalog(&services, id, &method, &headers).await
}

/// What to compare with.
#[derive(Deserialize, IntoParams)]
pub(crate) struct With {
    /// The catalog before.
    #[param(value_type = String)]
    before: CatalogId,
}

/// What differs between two catalogs.
#[utoipa::path(get, path = "/v1/catalogs/{id}/diff", tag = "catalogs", params(("id" = String, Path), With),
    responses((status = 200, body = CatalogDiffReply), (status = "default", body = Problem)))]
pub(crate) async fn diff(
    State(services): State<Services>,
    PathId(id): PathId<CatalogId>,
    Query(with): Query<With>,
) -> Answer<CatalogDiffReply> {
    Ok(Json(services.diffs.between(with.before, id).await?))
}

/// What a commit would change, on which nodes, equal changes told once.
#[utoipa::path(post, path = "/v1/catalogs/proposed", tag = "catalogs", request_body = FleetDiffRequest,
    responses((status = 200, body = FleetDiff), (status = "default", body = Problem)))]
pub(crate) async fn proposed(
    State(services): State<Services>,
    Body(request): Body<FleetDiffRequest>,
) -> Answer<FleetDiff> {
    let (environments, compiles) = (&services.environments, &services.compiles);
    let diff = services.diffs.proposed(environments, compiles, &request);
    Ok(Json(diff.await?))
}

/// Which releases to compare.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Releases {
    /// The parent of the other one when not given; 0 for nothing.
    #[param(value_type = Option<u64>)]
    before: Option<ReleaseNumber>,
    /// The newest when not given.
    #[param(value_type = Option<u64>)]
    after: Option<ReleaseNumber>,
    /// Compare what is released with what is held instead.
    #[serde(default)]
    held: bool,
}

/// What one release changed against another, equal changes told once.
#[utoipa::path(get, path = "/v1/releases/{environment}/diff", tag = "releases",
    params(("environment" = String, Path), Releases),
    responses((status = 200, body = FleetDiff), (status = "default", body = Problem)))]
pub(crate) async fn between_releases(
    State(services): State<Services>,
    PathEnvironment(environment): PathEnvironment,
    Query(releases): Query<Releases>,
) -> Answer<FleetDiff> {
    let diff = match releases.held {
        true => services.diffs.held(&environment).await?,
        false => {
            let diffs = &services.diffs;
            diffs
                .between_releases(&environment, releases.before, releases.after)
                .await?
        }
    };
    Ok(Json(diff))
}
