//! Certificates and requests for them.

use bunraku_control::Signer;
use bunraku_model::Role;
use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_wire::api::IssuedCertificate;
use bunraku_wire::certificate::Certificate;
use bunraku_wire::endpoints::{
    IssueCertificate, ListCertificateRequests, ListCertificates, RejectCertificateRequest,
    RenewCertificate, RevokeCertificates, ShowRevocationList, SignCertificateRequest,
};

use crate::http::audit::AuditNotes;
use crate::http::endpoint::{Call, HandlerResult, Routes, cut};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListCertificates, list)
        .add(ListCertificateRequests, requests)
        .add(SignCertificateRequest, sign)
        .add(RejectCertificateRequest, reject)
        .add(IssueCertificate, issue)
        .add(RenewCertificate, renew)
        .add(RevokeCertificates, revoke)
        .add(ShowRevocationList, revocation_list)
}

async fn list(call: Call<ListCertificates>) -> HandlerResult<ListCertificates> {
    Ok(call.services.certificates.page(&call.page).await?)
}

async fn requests(call: Call<ListCertificateRequests>) -> HandlerResult<ListCertificateRequests> {
    let requests = call.services.certificates.requests().await?;
    cut(&call.page, requests, |request| request.name.to_string())
}

async fn sign(call: Call<SignCertificateRequest>) -> HandlerResult<SignCertificateRequest> {
    call.services
        .certificates
        .sign(&call.path, &call.body, &call.caller()?.certificate)
        .await?;
    Ok(())
}

async fn reject(call: Call<RejectCertificateRequest>) -> HandlerResult<RejectCertificateRequest> {
    call.services.certificates.reject(&call.path).await?;
    Ok(())
}

async fn issue(call: Call<IssueCertificate>) -> HandlerResult<IssueCertificate> {
    // `sign` is for nodes. An operator's or a server's certificate could be used for more than
    // its requester may do.
    if call.body.role != Role::Node {
        call.require(AccessVerb::Administer, AccessTarget::Everything)
            .await?;
    }
    let issued = call
        .services
        .certificates
        .issue(&call.body, Signer::Operator(&call.caller()?.certificate))
        .await?;
    note(&call.notes, &issued);
    Ok(issued)
}

async fn renew(call: Call<RenewCertificate>) -> HandlerResult<RenewCertificate> {
    let caller = call.caller()?;
    Ok(call
        .services
        .certificates
        .renew(&caller.certificate, &call.body)
        .await?)
}

/// Adds the new certificate to the audit log.
fn note(notes: &AuditNotes, issued: &IssuedCertificate) {
    if let Ok(certificate) = Certificate::from_pem(&issued.certificate) {
        notes.detail("name", certificate.common_name.clone());
        notes.detail("issued", certificate.serial.to_string());
    }
}

async fn revoke(call: Call<RevokeCertificates>) -> HandlerResult<RevokeCertificates> {
    let roles = call.services.certificates.valid_roles(&call.path).await?;
    if roles.iter().any(|role| *role != Role::Node) {
        call.require(AccessVerb::Administer, AccessTarget::Everything)
            .await?;
    }
    call.services
        .certificates
        .revoke(&call.path, &call.body, call.by()?)
        .await?;
    call.services.hub.disconnect(&call.path);
    Ok(())
}

async fn revocation_list(call: Call<ShowRevocationList>) -> HandlerResult<ShowRevocationList> {
    let list = call.services.certificates.revocation_lists_pem().await?;
    Ok(list)
}
