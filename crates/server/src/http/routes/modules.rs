//! Extension modules: what is published, and whose signatures count.

use axum::Json;
use axum::extract::{Path, Request, State};
use bunraku_wire::api::Problem;
use bunraku_wire::api::modules::{
    ModuleEvent, ModuleKeys, PublishedModule, RevokeModuleKey, RevokedModuleKey, TrustModuleKey,
    TrustedModuleKey,
};
use http::StatusCode;

use super::{Answer, Body, Services, whole_body};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;

/// Events that one answer has.
const EVENTS: usize = 200;

/// Every published version.
#[utoipa::path(get, path = "/v1/modules", tag = "modules",
    responses((status = 200, body = Vec<PublishedModule>), (status = "default", body = Problem)))]
pub(crate) async fn list(State(services): State<Services>) -> Answer<Vec<PublishedModule>> {
    Ok(Json(services.modules.list().await?))
}

/// Publish a signed package: the body is its bytes.
#[utoipa::path(post, path = "/v1/modules", tag = "modules",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = PublishedModule), (status = "default", body = Problem)))]
pub(crate) async fn publish(
    State(services): State<Services>,
    caller: Caller,
    request: Request,
) -> Answer<PublishedModule> {
    let package = whole_body(request, &services).await?;
    let published = services.modules.publish(package, caller.name.as_str());
    Ok(Json(published.await?))
}

/// The versions of one module.
#[utoipa::path(get, path = "/v1/modules/{module}", tag = "modules", params(("module" = String, Path)),
    responses((status = 200, body = Vec<PublishedModule>), (status = "default", body = Problem)))]
pub(crate) async fn versions(
    State(services): State<Services>,
    Path(module): Path<String>,
) -> Answer<Vec<PublishedModule>> {
    Ok(Json(services.modules.versions(&module).await?))
}

/// One version of a module.
#[utoipa::path(get, path = "/v1/modules/{module}/{version}", tag = "modules",
    params(("module" = String, Path), ("version" = String, Path)),
    responses((status = 200, body = PublishedModule), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    Path((module, version)): Path<(String, String)>,
) -> Answer<PublishedModule> {
    Ok(Json(services.modules.version(&module, &version).await?))
}

/// Take a version back; catalogs that pin it keep it.
#[utoipa::path(delete, path = "/v1/modules/{module}/{version}", tag = "modules",
    params(("module" = String, Path), ("version" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn remove(
    State(services): State<Services>,
    caller: Caller,
    Path((module, version)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let by = caller.name.as_str();
    services.modules.remove(&module, &version, by).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Who published, removed, trusted and revoked what, newest first.
#[utoipa::path(get, path = "/v1/module-events", tag = "modules",
    responses((status = 200, body = Vec<ModuleEvent>), (status = "default", body = Problem)))]
pub(crate) async fn history(State(services): State<Services>) -> Answer<Vec<ModuleEvent>> {
    Ok(Json(services.modules.history(EVENTS).await?))
}

/// Whose signatures count on servers.
#[utoipa::path(get, path = "/v1/module-keys", tag = "modules",
    responses((status = 200, body = ModuleKeys), (status = "default", body = Problem)))]
pub(crate) async fn keys(State(services): State<Services>) -> Answer<ModuleKeys> {
    Ok(Json(services.modules.keys().await?))
}

/// Trust a key on servers; nodes trust keys of their own.
#[utoipa::path(post, path = "/v1/module-keys", tag = "modules", request_body = TrustModuleKey,
    responses((status = 200, body = TrustedModuleKey), (status = "default", body = Problem)))]
pub(crate) async fn trust(
    State(services): State<Services>,
    caller: Caller,
    Body(request): Body<TrustModuleKey>,
) -> Answer<TrustedModuleKey> {
    let trusted = services.modules.trust(&request.key, caller.name.as_str());
    Ok(Json(trusted.await?))
}

/// Revoke a key, on servers and on every node, for ever.
#[utoipa::path(post, path = "/v1/module-keys/revoke", tag = "modules", request_body = RevokeModuleKey,
    responses((status = 200, body = RevokedModuleKey), (status = "default", body = Problem)))]
pub(crate) async fn revoke(
    State(services): State<Services>,
    caller: Caller,
    Body(request): Body<RevokeModuleKey>,
) -> Answer<RevokedModuleKey> {
    let RevokeModuleKey {
        fingerprint,
        reason,
    } = request;
    let revoked = (services.modules).revoke(&fingerprint, &reason, caller.name.as_str());
    Ok(Json(revoked.await?))
}

/// The fingerprints of revoked keys, for nodes.
#[utoipa::path(get, path = "/v1/module-keys/revoked", tag = "modules",
    responses((status = 200, body = Vec<String>), (status = "default", body = Problem)))]
pub(crate) async fn revoked(State(services): State<Services>) -> Answer<Vec<String>> {
    Ok(Json(services.modules.revoked().await?))
}
