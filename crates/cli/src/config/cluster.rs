//! `[server.cluster]`: how a member of a cluster behaves.

use std::path::PathBuf;

use serde::Deserialize;

use crate::duration::HumanDuration;

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
    /// Of the certificates that members and datastores show each other.
    pub(crate) certificate_lifetime: HumanDuration,
    /// How servers that want to join without a token are verified.
    pub(crate) ssh: Option<ClusterSshSection>,
}

/// `[server.cluster.ssh]`: how another machine is reached and verified.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterSshSection {
    /// Machines that are trusted: their host keys, or an authority for those
    /// (`@cert-authority * ssh-ed25519 …`).
    pub(crate) known_hosts: PathBuf,
    /// A private key that they accept.
    pub(crate) identity: Option<PathBuf>,
    /// Or an SSH authority's private key that they trust: each connection gets
    /// a key and a certificate of its own, good for some minutes.
    pub(crate) authority: Option<PathBuf>,
    #[serde(default = "root")]
    pub(crate) user: String,
    /// Become root there with `sudo -n`.
    #[serde(default)]
    pub(crate) sudo: bool,
    pub(crate) port: Option<u16>,
    /// Further options for `ssh -o`, as KEY=VALUE.
    #[serde(default)]
    pub(crate) options: Vec<String>,
}

fn root() -> String {
    "root".to_owned()
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
            certificate_lifetime: HumanDuration::from_secs(30 * 24 * 3_600),
            ssh: None,
        }
    }
}
