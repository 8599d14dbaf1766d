//! Chooses the next change to begin.

use bunraku_model::NodeName;
use jiff::Timestamp;

use super::cluster_state::{Datastore, FailoverInput, Liveness, Server};
use super::plan::{ChangeReason, DatastoreChange, OutgoingMember};
use super::{Limits, WaitReason};

/// Returns how many datastores there can be with this many eligible servers: the
/// wanted number, one, or the largest odd number in between. Never two: two stop
/// when either of them fails, so they are worse than one.
pub fn target(wanted: usize, eligible: usize) -> usize {
    let most = wanted.min(eligible).max(1);
    if most.is_multiple_of(2) {
        most - 1
    } else {
        most
    }
}

/// Returns the first server, by name, that can take the role and does not have it.
pub(super) fn replacement(seen: &FailoverInput) -> Option<NodeName> {
    replacements(seen).map(|server| server.name.clone()).min()
}

fn replacements(seen: &FailoverInput) -> impl Iterator<Item = &Server> {
    seen.servers.iter().filter(|server| {
        server.is_alive() && server.can_take_the_role() && seen.datastore_of(server).is_none()
    })
}

/// Returns the most urgent change, or the reason why there is none.
pub(super) fn choose(
    seen: &FailoverInput,
    limits: &Limits,
    now: Timestamp,
) -> Result<DatastoreChange, WaitReason> {
    let mut reason_to_wait = WaitReason::Content;
    for (member, server, since) in lost(seen, now) {
        if now.duration_since(since) < limits.grace {
            reason_to_wait = WaitReason::Grace(server.name.clone());
            continue;
        }
        if !seen.majority_without(member.id) {
            return Err(WaitReason::Unsafe);
        }
        return replace(seen, member, server, ChangeReason::Dead, now);
    }
    if let Some((member, server)) = draining(seen) {
        return replace(seen, member, server, ChangeReason::Drain, now);
    }
    grow(seen, now).ok_or(reason_to_wait)
}

/// Returns the datastores that do not answer, with the time since when, the longest
/// lost first. A failing datastore on a live server (a full disk, damaged files) is
/// lost, too; its time counts from when the failure was first seen.
fn lost(seen: &FailoverInput, now: Timestamp) -> Vec<(&Datastore, &Server, Timestamp)> {
    let mut lost: Vec<_> = with_servers(seen)
        .filter(|(member, _)| !member.healthy)
        .filter_map(|(member, server)| {
            let since = match server.state {
                Liveness::Dead | Liveness::Left => server.since,
                Liveness::Alive => member.failing_since.unwrap_or(now),
                Liveness::Suspect => return None,
            };
            Some((member, server, since))
        })
        .collect();
    lost.sort_by_key(|(_, _, since)| *since);
    lost
}

/// Returns the server whose datastore has been lost for the longest time, and since when.
pub(super) fn longest_lost(seen: &FailoverInput, now: Timestamp) -> Option<(&Server, Timestamp)> {
    let lost = lost(seen, now).into_iter().next();
    lost.map(|(_, server, since)| (server, since))
}

fn draining(seen: &FailoverInput) -> Option<(&Datastore, &Server)> {
    with_servers(seen).find(|(_, server)| server.draining)
}

fn with_servers(seen: &FailoverInput) -> impl Iterator<Item = (&Datastore, &Server)> {
    seen.voters()
        .filter_map(|member| Some((member, seen.server_of(member)?)))
}

fn replace(
    seen: &FailoverInput,
    member: &Datastore,
    server: &Server,
    reason: ChangeReason,
    now: Timestamp,
) -> Result<DatastoreChange, WaitReason> {
    // A live server with a broken datastore can start over on its own, with none of its old data.
    let itself = || {
        let broken =
            reason == ChangeReason::Dead && server.is_alive() && server.can_take_the_role();
        broken.then(|| server.name.clone())
    };
    let into = replacement(seen)
        .or_else(itself)
        .ok_or_else(|| WaitReason::NoReplacement(server.name.clone()))?;
    Ok(DatastoreChange {
        number: 0,
        reason,
        out: Some(OutgoingMember {
            id: member.id,
            name: server.name.clone(),
        }),
        into,
        program: None,
        started: now,
    })
}

fn grow(seen: &FailoverInput, now: Timestamp) -> Option<DatastoreChange> {
    let voters = seen.voters().count();
    let free = replacements(seen).count();
    let wanted = target(seen.wanted, voters + free);
    // All missing datastores can be added: the change does not stop half-way at an even number.
    (voters < wanted && free >= wanted - voters).then_some(())?;
    Some(DatastoreChange {
        number: 0,
        reason: ChangeReason::Grow,
        out: None,
        into: replacement(seen)?,
        program: None,
        started: now,
    })
}
