//! What the configuration file may say, with every default.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::DEFAULT_PORT;
use crate::duration::HumanDuration;

const fn days(days: u64) -> HumanDuration {
    HumanDuration::from_secs(days * 24 * 3_600)
}

/// The whole file.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    pub(crate) client: ClientSection,
    pub(crate) server: ServerSection,
    pub(crate) agent: AgentSection,
}

/// For the commands that talk to a server.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClientSection {
    /// `HOST:PORT`, tried in order.
    pub(crate) servers: Vec<String>,
    /// Directory with ca.pem, cert.pem and key.pem.
    pub(crate) credentials: Option<PathBuf>,
}

/// For `bunraku server`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerSection {
    pub(crate) listen: SocketAddr,
    /// In its certificate; the host name when not given.
    pub(crate) name: Option<String>,
    /// Further names and addresses that nodes reach it by.
    pub(crate) names: Vec<String>,
    pub(crate) data_dir: PathBuf,
    /// Health and metrics without a certificate; loopback only.
    pub(crate) health_listen: Option<SocketAddr>,
    pub(crate) store: StoreSection,
    pub(crate) authority: AuthoritySection,
    pub(crate) certificates: CertificatesSection,
    pub(crate) limits: LimitsSection,
    pub(crate) cluster: ClusterSection,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)),
            name: None,
            names: Vec::new(),
            data_dir: PathBuf::from("/var/lib/bunraku/server"),
            health_listen: None,
            store: StoreSection::default(),
            authority: AuthoritySection::default(),
            certificates: CertificatesSection::default(),
            limits: LimitsSection::default(),
            cluster: ClusterSection::default(),
        }
    }
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    /// In the data directory; nothing to install.
    #[default]
    Embedded,
    Etcd,
}

/// Where the server keeps everything.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreSection {
    pub(crate) kind: StoreKind,
    /// etcd's client addresses, `http://…` or `https://…`.
    pub(crate) endpoints: Vec<String>,
    /// Every key begins with this in etcd.
    pub(crate) root: String,
    /// How far back etcd keeps history; what is older is compacted away.
    pub(crate) history: HumanDuration,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            kind: StoreKind::Embedded,
            endpoints: Vec::new(),
            root: "/bunraku/".to_owned(),
            history: HumanDuration::from_secs(3_600),
            ca: None,
            certificate: None,
            key: None,
        }
    }
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuthorityKind {
    /// Made on first start.
    #[default]
    Own,
    /// An existing Puppet CA directory.
    Puppet,
}

/// Who signs certificates.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuthoritySection {
    pub(crate) kind: AuthorityKind,
    /// `<data_dir>/ca` when not given; must be given for Puppet's.
    pub(crate) directory: Option<PathBuf>,
}

/// How long certificates live.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CertificatesSection {
    pub(crate) node_lifetime: HumanDuration,
    pub(crate) operator_lifetime: HumanDuration,
    pub(crate) server_lifetime: HumanDuration,
}

impl Default for CertificatesSection {
    fn default() -> Self {
        Self {
            node_lifetime: days(365),
            operator_lifetime: days(365),
            server_lifetime: days(90),
        }
    }
}

/// What the server takes at most.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsSection {
    pub(crate) connections: usize,
    pub(crate) facts_bytes: usize,
    pub(crate) body_bytes: usize,
    pub(crate) waiting_requests: usize,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            connections: 100_000,
            facts_bytes: 8 << 20,
            body_bytes: 1 << 20,
            waiting_requests: 10_000,
        }
    }
}

/// How a server behaves that is a member of a cluster. Who it is, and where,
/// was said to `bunraku cluster init` or `join`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClusterSection {
    /// Where it listens for members, and its datastore for all servers.
    pub(crate) listen: std::net::IpAddr,
    pub(crate) etcd: PathBuf,
    pub(crate) etcdctl: PathBuf,
    /// Further flags for etcd.
    pub(crate) etcd_flags: Vec<String>,
    pub(crate) etcd_heartbeat: HumanDuration,
    pub(crate) etcd_election: HumanDuration,
    /// How often another member is probed.
    pub(crate) probe_period: HumanDuration,
    pub(crate) probe_timeout: HumanDuration,
    /// How long a suspect has to speak up.
    pub(crate) suspicion: HumanDuration,
    /// How long a dead datastore is waited for before it is replaced.
    pub(crate) grace: HumanDuration,
    pub(crate) pause_between_changes: HumanDuration,
    pub(crate) most_changes_per_hour: usize,
    pub(crate) snapshot_every: HumanDuration,
    pub(crate) snapshots_kept: usize,
}

impl Default for ClusterSection {
    fn default() -> Self {
        Self {
            listen: std::net::IpAddr::from([0, 0, 0, 0]),
            etcd: PathBuf::from("/usr/bin/etcd"),
            etcdctl: PathBuf::from("/usr/bin/etcdctl"),
            etcd_flags: Vec::new(),
            etcd_heartbeat: HumanDuration::from_millis(100),
            etcd_election: HumanDuration::from_secs(1),
            probe_period: HumanDuration::from_secs(1),
            probe_timeout: HumanDuration::from_millis(300),
            suspicion: HumanDuration::from_secs(4),
            grace: HumanDuration::from_secs(60),
            pause_between_changes: HumanDuration::from_secs(10),
            most_changes_per_hour: 12,
            snapshot_every: HumanDuration::from_secs(6 * 3_600),
            snapshots_kept: 8,
        }
    }
}

/// For `bunraku agent`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentSection {
    /// The fully qualified host name when not given.
    pub(crate) name: Option<String>,
    /// `HOST:PORT`, tried in order.
    pub(crate) servers: Vec<String>,
    pub(crate) data_dir: PathBuf,
    /// Pinned at the first contact: `SHA256:…`, as `bunraku token create` prints it.
    pub(crate) ca_fingerprint: Option<String>,
    /// A file with the one-time token, so that it stands in no process list.
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) facts_interval: HumanDuration,
    /// Directories with facts of your own.
    pub(crate) external_facts: Vec<PathBuf>,
    pub(crate) external_facts_timeout: HumanDuration,
}

impl Default for AgentSection {
    fn default() -> Self {
        Self {
            name: None,
            servers: Vec::new(),
            data_dir: PathBuf::from("/var/lib/bunraku/agent"),
            ca_fingerprint: None,
            token_file: None,
            facts_interval: HumanDuration::from_secs(1_800),
            external_facts: vec![
                PathBuf::from("/etc/bunraku/facts.d"),
                PathBuf::from("/etc/facter/facts.d"),
                PathBuf::from("/etc/puppetlabs/facter/facts.d"),
            ],
            external_facts_timeout: HumanDuration::from_secs(30),
        }
    }
}
