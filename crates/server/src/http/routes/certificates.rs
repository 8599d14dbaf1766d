//! Certificates and requests for them.

use bunraku_control::Signer;
use bunraku_wire::endpoints::{
    IssueCertificate, ListCertificateRequests, ListCertificates, RejectCertificateRequest,
    RenewCertificate, RevokeCertificates, ShowRevocationList, SignCertificateRequest,
};

use crate::http::endpoint::{Call, HandlerResult, Routes};

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
    Ok(call.services.certificates.list().await?)
}

async fn requests(call: Call<ListCertificateRequests>) -> HandlerResult<ListCertificateRequests> {
    Ok(call.services.certificates.requests().await?)
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
    Ok(call
        .services
        .certificates
        .issue(&call.body, Signer::Operator(&call.caller()?.certificate))
        .await?)
}

async fn renew(call: Call<RenewCertificate>) -> HandlerResult<RenewCertificate> {
    let caller = call.caller()?;
    Ok(call
        .services
        .certificates
        .renew(&caller.certificate, &call.body)
        .await?)
}

async fn revoke(call: Call<RevokeCertificates>) -> HandlerResult<RevokeCertificates> {
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
