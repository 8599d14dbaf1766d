//! How to reach the cluster.

use std::time::Duration;

/// Where etcd is and how to talk to it.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The members' client addresses: `https://10.0.0.1:2379`. One is used at
    /// a time; the next one is tried when it fails.
    pub endpoints: Vec<String>,
    /// A copy of what one member has, for reading without a majority. It is no
    /// member: nothing else is ever asked of it.
    pub copy: Option<String>,
    /// Needed for `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// What every key starts with in etcd: `/bunraku/`. Two stores with
    /// different roots do not see each other.
    pub root: String,
    /// How long one attempt at one member may take.
    pub request_timeout: Duration,
    /// How long to go on trying what is safe to repeat.
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

/// Whom to trust, and who we are.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The authorities that sign the members' certificates.
    pub ca_pem: String,
    /// Our certificate, where the members ask for one.
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
