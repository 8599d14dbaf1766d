//! Joining, join tokens, certificates and revocation.

use bunraku_model::NodeName;

use super::definition::endpoints;
use super::{Json, NoContent, Paged, Pem, Text};
use crate::api::{
    CertificateEntry, IssueRequest, IssuedCertificate, JoinReply, JoinRequest, NewToken,
    PendingRequest, RenewRequest, RevokeRequest, SignRequest, TokenEntry, TokenRequest,
};

endpoints! {
    tag "certificates";

    /// Request the certificate of a new node.
    ///
    /// With a join token the request is signed at once. Without one it waits for an operator.
    Join: Post "/v1/join" {
        access: Anonymous,
        body: Json<JoinRequest>,
        reply: Json<JoinReply>,
        audited: ByService,
    }

    /// List the join tokens that can still be used.
    ListTokens: Get "/v1/tokens" {
        access: Operator,
        needs: Sign on Everything,
        reply: Paged<TokenEntry>,
    }

    /// Create a join token that can be used once.
    ///
    /// Only this reply shows the token.
    CreateToken: Post "/v1/tokens" {
        access: Operator,
        needs: Sign on Everything,
        body: Json<TokenRequest>,
        reply: Json<NewToken>,
        details: ["node", "ttl_seconds"],
    }

    /// Revoke a join token.
    RevokeToken: Delete "/v1/tokens/{id}" {
        access: Operator,
        needs: Sign on Everything,
        path: String,
        reply: NoContent,
        object: ("token", "id"),
    }

    /// List all certificates.
    ListCertificates: Get "/v1/certificates" {
        access: Operator,
        needs: View on Everything,
        reply: Paged<CertificateEntry>,
    }

    /// Issue a certificate with any role.
    IssueCertificate: Post "/v1/certificates/issue" {
        access: Operator,
        needs: Sign on Everything,
        body: Json<IssueRequest>,
        reply: Json<IssuedCertificate>,
        details: ["role", "server_names", "groups"],
    }

    /// Renew the certificate of the caller.
    RenewCertificate: Post "/v1/certificates/renew" {
        access: AnyRole,
        body: Json<RenewRequest>,
        reply: Json<IssuedCertificate>,
        audited: ByService,
    }

    /// Revoke the certificates of a name.
    RevokeCertificates: Post "/v1/certificates/{name}/revoke" {
        access: Operator,
        needs: Sign on Everything,
        path: NodeName,
        body: Json<RevokeRequest>,
        reply: NoContent,
        object: ("certificate", "name"),
        details: ["serial"],
    }

    /// List the certificate requests that wait for an operator.
    ListCertificateRequests: Get "/v1/certificate-requests" {
        access: Operator,
        needs: View on Everything,
        reply: Paged<PendingRequest>,
    }

    /// Sign a certificate request.
    SignCertificateRequest: Post "/v1/certificate-requests/{name}/sign" {
        access: Operator,
        needs: Sign on Everything,
        path: NodeName,
        body: Json<SignRequest>,
        reply: NoContent,
        object: ("certificate", "name"),
        details: ["fingerprint"],
    }

    /// Reject a certificate request.
    RejectCertificateRequest: Delete "/v1/certificate-requests/{name}" {
        access: Operator,
        needs: Sign on Everything,
        path: NodeName,
        reply: NoContent,
        object: ("certificate", "name"),
    }

    /// Return the signed list of revoked certificates.
    ShowRevocationList: Get "/v1/crl" {
        access: AnyRole,
        reply: Text<Pem>,
    }
}
