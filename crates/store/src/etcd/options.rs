//! Connection options for the cluster.

use std::time::Duration;

/// The addresses of etcd and the settings of the connection.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The members' client addresses: `https://10.0.0.1:2379`. One is used at
    /// a time; the next one is tried when it fails.
    pub endpoints: Vec<String>,
    /// A copy of one member's data, for reading without a majority. It is not a member and serves
    /// no other requests.
    pub copy: Option<String>,
    /// Needed for `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// The prefix of all keys in etcd: `/bunraku/`. Two stores with different roots do not see each
    /// other.
    pub root: String,
    /// The time limit for one attempt at one member.
    pub request_timeout: Duration,
    /// The total time for repeating requests that are safe to repeat.
    pub retry_for: Duration,
}

impl EtcdOptions {
    pub fn new(endpoints: Vec<String>, root: impl Into<String>) -> Self {
        Self {
            endpoints,
            copy: None,
            tls: None,
            root: root.into(),
            request_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(15),
        }
    }
}

/// The trusted authorities, and our own identity.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The authorities that sign the members' certificates.
    pub ca_pem: String,
    /// Our certificate, if the members require one.
    pub identity: Option<EtcdIdentity>,
}

/// A client certificate with its key.
#[derive(Clone)]
pub struct EtcdIdentity {
    pub cert_pem: String,
    pub key_pem: String,
}

impl std::fmt::Debug for EtcdIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdIdentity").finish_non_exhaustive()
    }
}
