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
