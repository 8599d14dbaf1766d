//! The origin of the current request.
//!
//! It belongs to the task, so that services which record a change in its transaction know the
//! request without an argument through every layer. Background work has none: then the server
//! itself acts.

use bunraku_model::Role;
use bunraku_wire::PeerIdentity;
use bunraku_wire::api::{AuditCertificate, AuditSource};

tokio::task_local! {
    static ORIGIN: AuditOrigin;
}

/// Who acts, from where, and with what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditOrigin {
    pub who: String,
    pub role: String,
    pub certificate: Option<AuditCertificate>,
    pub address: Option<String>,
    pub source: AuditSource,
    /// The program of the caller, as it named itself.
    pub client: Option<String>,
    pub request_id: Option<String>,
    /// The reason that the caller gave for the request.
    pub reason: Option<String>,
}

impl AuditOrigin {
    /// The server itself.
    pub fn server(name: &str) -> Self {
        Self {
            who: name.to_owned(),
            role: Role::Server.to_string(),
            certificate: None,
            address: None,
            source: AuditSource::Server,
            client: None,
            request_id: None,
            reason: None,
        }
    }

    /// The peer of a connection.
    pub fn peer(identity: Option<&PeerIdentity>, address: Option<String>) -> Self {
        let (who, role, certificate) = match identity {
            None => ("anonymous".to_owned(), "anonymous".to_owned(), None),
            Some(identity) => (
                identity.name.to_string(),
                identity.role.to_string(),
                Some(AuditCertificate {
                    serial: identity.serial.to_string(),
                    fingerprint: identity.fingerprint.to_string(),
                }),
            ),
        };
        Self {
            who,
            role,
            certificate,
            address,
            source: AuditSource::Api,
            client: None,
            request_id: None,
            reason: None,
        }
    }
}

/// Lets `work` act on behalf of a request.
pub async fn with_origin<F: Future>(origin: AuditOrigin, work: F) -> F::Output {
    ORIGIN.scope(origin, work).await
}

/// Returns the origin of the current request, if there is one.
pub(super) fn current() -> Option<AuditOrigin> {
    ORIGIN.try_with(Clone::clone).ok()
}
