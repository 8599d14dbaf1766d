//! The member of a cluster that a server is, when it is one.

use std::path::Path;
use std::sync::Arc;

use bunraku_cluster::directory::Directory;
use bunraku_cluster::failover::Limits;
use bunraku_cluster::member::{Member, MemberOptions};
use bunraku_cluster::membership::SwimOptions;
use bunraku_control::{ClusterLink, ClusterMember};
use bunraku_wire::api::cluster::{ClusterSight, ClusterWelcome};

use crate::config::ClusterSection;
use crate::failure::Failure;

struct Link(Member);

impl ClusterMember for Link {
    fn sight(&self) -> ClusterSight {
        self.0.sight()
    }

    fn servers(&self) -> Vec<String> {
        self.0.servers()
    }

    fn welcome(&self) -> Result<ClusterWelcome, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.0.welcome()?)
    }
}

pub(super) fn link(member: &Member) -> ClusterLink {
    ClusterLink(Arc::new(Link(member.clone())))
}

/// Starts the member whose directory this is; nothing when the server is none.
pub(super) async fn start(
    section: &ClusterSection,
    data_dir: &Path,
) -> Result<Option<Member>, Failure> {
    if Directory::of(data_dir).me()?.is_none() {
        return Ok(None);
    }
    let member = Member::start(options(section, data_dir)).await?;
    tracing::info!(name = %member.name(), cluster = member.cluster(), "this server is a member of a cluster");
    Ok(Some(member))
}

pub(super) fn options(section: &ClusterSection, data_dir: &Path) -> MemberOptions {
    MemberOptions {
        listen: section.listen,
        etcd: section.etcd.clone(),
        etcdctl: section.etcdctl.clone(),
        etcd_heartbeat: section.etcd_heartbeat.0,
        etcd_election: section.etcd_election.0,
        etcd_flags: section.etcd_flags.clone(),
        swim: SwimOptions {
            probe_period: section.probe_period.0,
            probe_timeout: section.probe_timeout.0,
            suspicion: section.suspicion.0,
            guard: true,
        },
        limits: Limits {
            grace: section.grace.signed(),
            pause: section.pause_between_changes.signed(),
            most_per_hour: section.most_changes_per_hour,
            ..Limits::default()
        },
        snapshot_every: section.snapshot_every.0,
        snapshots_kept: section.snapshots_kept,
        ..MemberOptions::new(data_dir.to_owned())
    }
}
