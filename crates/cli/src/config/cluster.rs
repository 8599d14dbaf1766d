//! `[server.cluster]`: the behaviour of a cluster member.

use std::path::PathBuf;

use serde::Deserialize;

use crate::duration::HumanDuration;

/// The behaviour of a server that is a cluster member. `bunraku cluster init` or `join` sets its
/// name and addresses.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClusterSection {
    /// The address on which it listens for members, and its datastore for all servers.
    pub(crate) listen: std::net::IpAddr,
    pub(crate) etcd: PathBuf,
    pub(crate) etcdctl: PathBuf,
    /// Additional flags for etcd.
    pub(crate) etcd_flags: Vec<String>,
    pub(crate) etcd_heartbeat: HumanDuration,
    pub(crate) etcd_election: HumanDuration,
    /// The interval between probes of another member.
    pub(crate) probe_period: HumanDuration,
    pub(crate) probe_timeout: HumanDuration,
    /// The time that a suspected member has to respond.
    pub(crate) suspicion: HumanDuration,
    /// The time to wait for a dead datastore before replacing it.
    pub(crate) grace: HumanDuration,
    pub(crate) pause_between_changes: HumanDuration,
    pub(crate) most_changes_per_hour: usize,
    pub(crate) snapshot_every: HumanDuration,
    pub(crate) snapshots_kept: usize,
    /// The lifetime of the certificates between members and datastores.
    pub(crate) certificate_lifetime: HumanDuration,
    /// The verification of servers that want to join without a token.
    pub(crate) ssh: Option<ClusterSshSection>,
}

/// `[server.cluster.ssh]`: the connection to another machine, and its verification.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterSshSection {
    /// The host keys of the machines. An operator also names each machine beforehand
    /// (`bunraku cluster expect`).
    pub(crate) known_hosts: PathBuf,
    /// A private key that the machines accept.
    pub(crate) identity: Option<PathBuf>,
    /// Alternatively, the private key of an SSH authority that the machines trust. Each connection
    /// gets its own key and a certificate that is valid for a few minutes.
    pub(crate) authority: Option<PathBuf>,
    #[serde(default = "root")]
    pub(crate) user: String,
    /// Becomes root on the machine with `sudo -n`.
    #[serde(default)]
    pub(crate) sudo: bool,
    pub(crate) port: Option<u16>,
    /// Additional options for `ssh -o`, as KEY=VALUE.
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
