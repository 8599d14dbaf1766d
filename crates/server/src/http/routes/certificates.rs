//! Certificates and requests for them.

use axum::Json;
use axum::extract::State;
use bunraku_wire::api::{
    CertificateEntry, IssueRequest, IssuedCertificate, PendingRequest, Problem, RenewRequest,
    RevokeRequest, SignRequest,
};
use http::{StatusCode, header};

use super::{Answer, Body, PathNode, Services};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;

/// Every certificate that was signed.
#[utoipa::path(get, path = "/v1/certificates", tag = "certificates",
    responses((status = 200, body = Vec<CertificateEntry>), (status = "default", body = Problem)))]
pub(crate) async fn list(State(services): State<Services>) -> Answer<Vec<CertificateEntry>> {
    Ok(Json(services.certificates.list().await?))
}

/// Requests that wait for an operator.
#[utoipa::path(get, path = "/v1/certificate-requests", tag = "certificates",
    responses((status = 200, body = Vec<PendingRequest>), (status = "default", body = Problem)))]
pub(crate) async fn requests(State(services): State<Services>) -> Answer<Vec<PendingRequest>> {
    Ok(Json(services.certificates.requests().await?))
}

/// Sign a waiting request.
#[utoipa::path(post, path = "/v1/certificate-requests/{name}/sign", tag = "certificates", params(("name" = String, Path)),
    request_body = SignRequest, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn sign(
    State(services): State<Services>,
    caller: Caller,
    PathNode(name): PathNode,
    Body(request): Body<SignRequest>,
) -> Result<StatusCode, Refusal> {
    services
        .certificates
        .sign(&name, &request, caller.name.as_str())
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Throw a waiting request away.
#[utoipa::path(delete, path = "/v1/certificate-requests/{name}", tag = "certificates", params(("name" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn reject(
    State(services): State<Services>,
    PathNode(name): PathNode,
) -> Result<StatusCode, Refusal> {
    services.certificates.reject(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sign a certificate of any role.
#[utoipa::path(post, path = "/v1/certificates/issue", tag = "certificates", request_body = IssueRequest,
    responses((status = 200, body = IssuedCertificate), (status = "default", body = Problem)))]
pub(crate) async fn issue(
    State(services): State<Services>,
    caller: Caller,
    Body(request): Body<IssueRequest>,
) -> Answer<IssuedCertificate> {
    Ok(Json(
        services
            .certificates
            .issue(&request, caller.name.as_str())
            .await?,
    ))
}

/// The caller's next certificate.
#[utoipa::path(post, path = "/v1/certificates/renew", tag = "certificates", request_body = RenewRequest,
    responses((status = 200, body = IssuedCertificate), (status = "default", body = Problem)))]
pub(crate) async fn renew(
    State(services): State<Services>,
    caller: Caller,
    Body(request): Body<RenewRequest>,
) -> Answer<IssuedCertificate> {
    Ok(Json(
        services
            .certificates
            .renew(&caller.name, caller.role, &request)
            .await?,
    ))
}

/// Revoke the certificates of a name.
#[utoipa::path(post, path = "/v1/certificates/{name}/revoke", tag = "certificates", params(("name" = String, Path)),
    request_body = RevokeRequest, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn revoke(
    State(services): State<Services>,
    caller: Caller,
    PathNode(name): PathNode,
    Body(request): Body<RevokeRequest>,
) -> Result<StatusCode, Refusal> {
    services
        .certificates
        .revoke(&name, &request, caller.name.as_str())
        .await?;
    services.hub.disconnect(&name);
    Ok(StatusCode::NO_CONTENT)
}

/// The signed list of revoked certificates, in PEM.
#[utoipa::path(get, path = "/v1/crl", tag = "certificates",
    responses((status = 200, body = String, content_type = "application/x-pem-file"), (status = "default", body = Problem)))]
pub(crate) async fn revocation_list(
    State(services): State<Services>,
) -> Result<([(header::HeaderName, &'static str); 1], String), Refusal> {
    let list = services.certificates.revocation_lists_pem().await?;
    Ok(([(header::CONTENT_TYPE, "application/x-pem-file")], list))
}
