//! The state of a cluster as text.

use bunraku_wire::api::SpaceStatus;
use bunraku_wire::api::cluster::{ClusterStatus, MemberRecord, MemberState, MemberView};

use crate::output::count;

pub(crate) fn is_whole(status: &ClusterStatus) -> bool {
    let alive = |seen: &MemberView| seen.state == MemberState::Alive;
    status.without_majority_seconds.is_none()
        && status.sight.members.iter().all(alive)
        && status.datastores.iter().all(|it| it.healthy)
        && !status.space.as_ref().is_some_and(SpaceStatus::is_full)
}

pub(crate) fn state_name(state: MemberState) -> &'static str {
    match state {
        MemberState::Alive => "alive",
        MemberState::Suspect => "suspect",
        MemberState::Dead => "dead",
        MemberState::Left => "left",
    }
}

/// Summarizes the state of the datastores in one line.
pub(crate) fn summary(status: &ClusterStatus) -> String {
    let voters = status.datastores.iter().filter(|it| !it.learner).count();
    let healthy = status
        .datastores
        .iter()
        .filter(|it| it.healthy && !it.learner);
    let (healthy, majority) = (healthy.count(), voters / 2 + 1);
    match status.without_majority_seconds {
        Some(seconds) => format!(
            "NO MAJORITY of {} for {seconds} s: read-only",
            count(voters, "datastore")
        ),
        None => format!(
            "{healthy} of {} healthy; tolerates {}",
            count(voters, "datastore"),
            match healthy.saturating_sub(majority) {
                0 => "no failure".to_owned(),
                spare => count(spare, "failure"),
            }
        ),
    }
}

/// Describes the space of the fullest datastore in one line.
pub(crate) fn space_line(space: &SpaceStatus) -> Option<String> {
    let members = space.members.iter();
    let fullest = members.max_by_key(|member| (member.used_bytes, member.size_bytes))?;
    let used = megabytes(fullest.used_bytes);
    let size = megabytes(fullest.size_bytes);
    let of_quota = match (fullest.limit_bytes, fullest.quota_bytes) {
        (Some(limit), Some(quota)) => format!(
            "{used} of {} used, {size} on disk, quota {}",
            megabytes(limit),
            megabytes(quota)
        ),
        _ => format!("{used} used, {size} on disk, quota unknown"),
    };
    let state = match (space.alarm, space.level.as_str()) {
        (true, _) => "; FULL: etcd raised its NOSPACE alarm and refuses writes",
        (false, "full") => "; FULL: new data is refused",
        (false, "low") => "; filling up",
        _ => "",
    };
    Some(format!("space: {of_quota}{state}"))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// The role of a server for the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataRole {
    /// It stores data and does not answer.
    Away,
    CatchingUp,
    /// It stores data until another server does.
    Draining,
    Healthy,
    Drained,
    Eligible,
    /// Its server is away, so it cannot store data.
    None,
    Never,
}

impl DataRole {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Away => "unreachable",
            Self::CatchingUp => "catching up",
            Self::Draining => "draining",
            Self::Healthy => "healthy",
            Self::Drained => "drained",
            Self::Eligible => "eligible",
            Self::None => "none",
            Self::Never => "never",
        }
    }
}

pub(crate) fn role(status: &ClusterStatus, member: &MemberRecord) -> DataRole {
    let datastore = status
        .datastores
        .iter()
        .find(|it| it.name.as_ref() == Some(&member.name));
    match datastore {
        Some(_) if is_away(status, last_observation(status, member)) => DataRole::Away,
        Some(it) if it.learner => DataRole::CatchingUp,
        Some(it) if !it.healthy => DataRole::Away,
        Some(_) if member.draining => DataRole::Draining,
        Some(_) => DataRole::Healthy,
        None if member.draining => DataRole::Drained,
        None if !is_present(last_observation(status, member)) => DataRole::None,
        None if member.eligible => DataRole::Eligible,
        None => DataRole::Never,
    }
}

/// Returns the last observation of a server's presence.
pub(crate) fn last_observation<'a>(
    status: &'a ClusterStatus,
    member: &MemberRecord,
) -> Option<&'a MemberView> {
    let mut members = status.sight.members.iter();
    members.find(|it| it.name == member.name)
}

/// Returns hints on what to do about the state of the cluster.
pub(crate) fn hints(status: &ClusterStatus) -> Vec<String> {
    let mut hints = Vec::new();
    if status.sight.health_score > 0 {
        hints.push(format!(
            "warning: {} is short of CPU time (health score {}); its view of the other servers may be wrong",
            status.sight.seen_by, status.sight.health_score
        ));
    }
    if status.without_majority_seconds.is_some() {
        hints.push("hint: start the machines of the datastores again; only if they are lost for good, run `bunraku cluster recover`".to_owned());
    }
    if status.space.as_ref().is_some_and(SpaceStatus::is_full) {
        hints.push("hint: delete what you do not need, or raise the quota of the datastores; see docs/operating.md".to_owned());
    }
    if status.leader.is_none() {
        hints.push(
            "warning: no server manages the datastores at the moment; their state may be stale"
                .to_owned(),
        );
    }
    if status.members.len() == 2 {
        hints.push("warning: with two servers, only one stores the data; add a third to tolerate a failure".to_owned());
    }
    hints
}

/// Returns true if a server is alive, as far as the answering server knows.
fn is_present(seen: Option<&MemberView>) -> bool {
    seen.is_none_or(|seen| matches!(seen.state, MemberState::Alive | MemberState::Suspect))
}

/// Returns true if a server is away. Without a majority nobody records who answers, so this
/// server's own observation counts.
fn is_away(status: &ClusterStatus, seen: Option<&MemberView>) -> bool {
    let away = |seen: &MemberView| !matches!(seen.state, MemberState::Alive | MemberState::Suspect);
    status.without_majority_seconds.is_some() && seen.is_none_or(away)
}
