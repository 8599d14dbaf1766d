//! The cluster member that runs inside a server.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bunraku_cluster::directory::Directory;
use bunraku_cluster::failover::Limits;
use bunraku_cluster::member::{Member, MemberOptions};
use bunraku_cluster::membership::SwimOptions;
use bunraku_server::{ClusterLink, ClusterMember};
use bunraku_wire::api::cluster::{ClusterView, ClusterWelcome};

use crate::config::ClusterSection;
use crate::failure::Failure;
use crate::ssh::JoinOverSsh;

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Link {
    member: Member,
    ssh: Option<JoinOverSsh>,
}

impl Link {
    fn ssh(&self) -> Result<&JoinOverSsh, Error> {
        self.ssh
            .as_ref()
            .ok_or_else(|| "[server.cluster.ssh] is not set".into())
    }
}

#[async_trait]
impl ClusterMember for Link {
    fn view(&self) -> ClusterView {
        self.member.view()
    }

    fn servers(&self) -> Vec<String> {
        self.member.servers()
    }

    fn welcome(&self) -> Result<ClusterWelcome, Error> {
        Ok(self.member.welcome()?)
    }

    fn speaks_ssh(&self) -> bool {
        self.ssh.is_some()
    }

    async fn read_key(&self, host: &str, place: &str) -> Result<String, Error> {
        self.ssh()?.read_key(host, place).await
    }

    async fn place_welcome(&self, host: &str, place: &str, text: &[u8]) -> Result<(), Error> {
        self.ssh()?.place_welcome(host, place, text).await
    }
}

pub(super) fn link(member: &Member, section: &ClusterSection) -> ClusterLink {
    ClusterLink(Arc::new(Link {
        member: member.clone(),
        ssh: section.ssh.clone().map(JoinOverSsh::new),
    }))
}

/// Starts the member of this directory. Returns nothing if the server is not a member.
pub(super) async fn start(
    section: &ClusterSection,
    data_dir: &Path,
) -> Result<Option<Member>, Failure> {
    if Directory::of(data_dir).local_member()?.is_none() {
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
        certificate_lifetime: section.certificate_lifetime.signed(),
        ..MemberOptions::new(data_dir.to_owned())
    }
}
