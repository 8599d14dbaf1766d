//! Which change to begin.

use bunraku_model::NodeName;
use jiff::Timestamp;

use super::plan::{Change, Outgoing, Reason};
use super::seen::{Datastore, Liveness, Seen, Server};
use super::{Limits, Waiting};

/// How many datastores there can be with so many eligible servers: as many as
/// wanted, one, or the largest odd number in between. Never two: two stop
/// when either of them does, so they are worse than one.
pub fn target(wanted: usize, eligible: usize) -> usize {
    let most = wanted.min(eligible).max(1);
    if most.is_multiple_of(2) {
        most - 1
    } else {
        most
    }
}

/// The first server, by name, that could take the role and has none.
pub(super) fn replacement(seen: &Seen) -> Option<NodeName> {
    replacements(seen).map(|server| server.name.clone()).min()
}

fn replacements(seen: &Seen) -> impl Iterator<Item = &Server> {
    seen.servers.iter().filter(|server| {
        server.is_alive() && server.can_take_the_role() && seen.datastore_of(server).is_none()
    })
}

/// The most urgent change, or why there is none.
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

/// Datastores that do not answer, with since when, the longest lost first. One
/// whose server lives but that fails all the same (a full disk, damaged
/// files) is lost, too; it counts from when it was first seen failing.
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

/// The server whose datastore is lost for longest, and since when.
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
    // A server that lives and whose datastore is broken can begin anew itself,
    // with nothing of what it had.
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
    // All that are missing are there: it does not stop half-way at an even number.
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
