//! Chooses the next change to begin.

use bunraku_model::NodeName;
use jiff::Timestamp;

use super::plan::{Change, Outgoing, Reason};
use super::seen::{Datastore, Liveness, Seen, Server};
use super::{Limits, Waiting};

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
pub(super) fn replacement(seen: &Seen) -> Option<NodeName> {
    replacements(seen).map(|server| server.name.clone()).min()
}

fn replacements(seen: &Seen) -> impl Iterator<Item = &Server> {
    seen.servers.iter().filter(|server| {
        server.is_alive() && server.can_take_the_role() && seen.datastore_of(server).is_none()
    })
}

/// Returns the most urgent change, or the reason why there is none.
pub(super) fn choose(seen: &Seen, limits: &Limits, now: Timestamp) -> Result<Change, Waiting> {
    let mut reason_to_wait = Waiting::Content;
    for (member, server, since) in lost(seen, now) {
        if now.duration_since(since) < limits.grace {
            reason_to_wait = Waiting::Grace(server.name.clone());
            continue;
        }
        if !seen.majority_without(member.id) {
            return Err(Waiting::Unsafe);
        }
        return replace(seen, member, server, Reason::Dead, now);
    }
    if let Some((member, server)) = draining(seen) {
        return replace(seen, member, server, Reason::Drain, now);
    }
    grow(seen, now).ok_or(reason_to_wait)
}

/// Returns the datastores that do not answer, with the time since when, the longest
/// lost first. A failing datastore on a live server (a full disk, damaged files) is
/// lost, too; its time counts from when the failure was first seen.
fn lost(seen: &Seen, now: Timestamp) -> Vec<(&Datastore, &Server, Timestamp)> {
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
pub(super) fn longest_lost(seen: &Seen, now: Timestamp) -> Option<(&Server, Timestamp)> {
    let lost = lost(seen, now).into_iter().next();
    lost.map(|(_, server, since)| (server, since))
}

fn draining(seen: &Seen) -> Option<(&Datastore, &Server)> {
    with_servers(seen).find(|(_, server)| server.draining)
}

fn with_servers(seen: &Seen) -> impl Iterator<Item = (&Datastore, &Server)> {
    seen.voters()
        .filter_map(|member| Some((member, seen.server_of(member)?)))
}

fn replace(
    seen: &Seen,
    member: &Datastore,
    server: &Server,
    reason: Reason,
    now: Timestamp,
) -> Result<Change, Waiting> {
    // A live server with a broken datastore can start over on its own, with none of its old data.
    let itself = || {
        let broken = reason == Reason::Dead && server.is_alive() && server.can_take_the_role();
        broken.then(|| server.name.clone())
    };
    let into = replacement(seen)
        .or_else(itself)
        .ok_or_else(|| Waiting::NoReplacement(server.name.clone()))?;
    Ok(Change {
        number: 0,
        reason,
        out: Some(Outgoing {
            id: member.id,
            name: server.name.clone(),
        }),
        into,
        program: None,
        started: now,
    })
}

fn grow(seen: &Seen, now: Timestamp) -> Option<Change> {
    let voters = seen.voters().count();
    let free = replacements(seen).count();
    let wanted = target(seen.wanted, voters + free);
    // All missing datastores can be added: the change does not stop half-way at an even number.
    (voters < wanted && free >= wanted - voters).then_some(())?;
    Some(Change {
        number: 0,
        reason: Reason::Grow,
        out: None,
        into: replacement(seen)?,
        program: None,
        started: now,
    })
}
