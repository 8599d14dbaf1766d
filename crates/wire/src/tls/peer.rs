//! The peer of a connection.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::access::GroupName;
use bunraku_model::{NodeName, Role};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use crate::certificate::{Certificate, CertificateError};
use crate::fingerprint::Fingerprint;
use crate::serial::Serial;
use crate::trusted_extensions::extensions_of;

/// The holder of a verified certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    pub name: NodeName,
    pub role: Role,
    /// The groups of an operator.
    pub groups: BTreeSet<GroupName>,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// The Puppet extensions, such as `pp_role`.
    pub extensions: BTreeMap<String, String>,
}

/// The reason why a verified certificate does not name a peer.
#[derive(Debug, thiserror::Error)]
#[error("the peer's certificate does not identify a node, operator or server")]
pub struct PeerError(#[source] CertificateError);

impl PeerIdentity {
    /// Returns the peer of an accepted connection, or `None` if it presented no certificate.
    /// TLS has already verified the certificate.
    pub fn of<IO>(stream: &tokio_rustls::server::TlsStream<IO>) -> Result<Option<Self>, PeerError> {
        Self::of_connection(stream.get_ref().1)
    }

    /// Like [`PeerIdentity::of`], for a bare connection.
    pub fn of_connection(connection: &rustls::ServerConnection) -> Result<Option<Self>, PeerError> {
        connection
            .peer_certificates()
            .and_then(<[CertificateDer<'_>]>::first)
            .map(|der| Self::from_der(der))
            .transpose()
    }

    /// Returns the peer that a certificate names. The caller has verified the certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, PeerError> {
        let certificate = Certificate::from_der(der).map_err(PeerError)?;
        Ok(Self {
            name: certificate.name().map_err(PeerError)?,
            role: certificate.role,
            groups: certificate.groups,
            serial: certificate.serial,
            fingerprint: certificate.fingerprint,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            extensions: extensions_of(der).map_err(PeerError)?,
        })
    }
}
