//! Decides what to do when a datastore is lost, as a pure function.
//!
//! [`next`] takes the current state and the [`Plan`] in the store, and returns the
//! next step: store a plan, act, or wait. The lease holder does it and looks again.
//! Nothing is remembered in between except the plan, so any server can continue
//! where another one stopped.
//!
//! Invariants:
//! - a plan is stored before any part of it is done;
//! - no voter is removed unless the healthy ones that stay are a majority;
//! - there is one change at a time, and one learner at a time;
//! - nothing is removed without a replacement;
//! - a datastore is restarted for a new etcd only while all are healthy.
//!
//! Not here: clocks, the network, etcd. Those are arguments, or belong to `actor`.

mod choose;
mod plan;
mod seen;
mod upgrade;

use jiff::{SignedDuration, Timestamp};

pub use choose::target;
pub use plan::{Change, Outgoing, Plan, Reason};
pub use seen::{Datastore, Liveness, Seen, Server};
pub use upgrade::{Program, Programs};

/// Limits on how fast the datastores are changed.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The waiting time for a dead server, which may be rebooting.
    pub grace: SignedDuration,
    /// The time limit for an ordered datastore to start and answer.
    pub start: SignedDuration,
    /// The time between the end of one change and the start of the next.
    pub pause: SignedDuration,
    /// The limit of changes per hour. More mean that something else is wrong.
    pub most_per_hour: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            grace: SignedDuration::from_secs(60),
            start: SignedDuration::from_secs(60),
            pause: SignedDuration::from_secs(10),
            most_per_hour: 12,
        }
    }
}

/// A change to the datastores, or an instruction to a server. All actions are idempotent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Removes a member from etcd's list.
    Remove { id: u64 },
    /// Adds a server to etcd's list, without a vote.
    AddLearner { server: bunraku_model::NodeName },
    /// Orders a server to start the datastore that etcd's list has for it.
    Start {
        server: bunraku_model::NodeName,
        id: u64,
    },
    /// Orders a server to stop keeping data.
    Retire { server: bunraku_model::NodeName },
    /// Orders a server to restart its datastore with the installed program.
    Restart {
        server: bunraku_model::NodeName,
        /// The number of the change.
        number: u64,
    },
    /// Gives a learner its vote. etcd refuses until the learner has caught up.
    Promote { id: u64 },
}

/// The reason why nothing is done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Waiting {
    #[error("all is as it should be")]
    Content,
    #[error("too few datastores answer: nothing is changed without a majority")]
    NoMajority,
    #[error("`{0}` may come back by itself")]
    Grace(bunraku_model::NodeName),
    #[error("a change ended a moment ago")]
    Pause,
    #[error("{0} changes in one hour: something else is wrong, nothing more is changed by itself")]
    TooMany(usize),
    #[error("`{0}` cannot be replaced: no other server is alive and eligible")]
    NoReplacement(bunraku_model::NodeName),
    #[error("`{0}` starts its datastore")]
    Starting(bunraku_model::NodeName),
    #[error("etcd {version} is installed on `{server}` and not started: {why}")]
    Upgrade {
        server: bunraku_model::NodeName,
        version: String,
        why: String,
    },
    #[error("removing a datastore now would leave no majority")]
    Unsafe,
}

/// The next step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Store this plan in place of the one that was read, then decide again.
    Store(Plan),
    Act(Action),
    Wait(Waiting),
}

/// Decides the next step.
pub fn next(plan: &Plan, seen: &Seen, limits: &Limits, now: Timestamp) -> Next {
    if !seen.has_majority() {
        return Next::Wait(Waiting::NoMajority);
    }
    if let Some(server) = seen.to_retire() {
        return Next::Act(Action::Retire {
            server: server.name.clone(),
        });
    }
    match &plan.current {
        Some(change) => proceed(plan, change, seen, limits, now),
        None => begin(plan, seen, limits, now),
    }
}

fn begin(plan: &Plan, seen: &Seen, limits: &Limits, now: Timestamp) -> Next {
    // Left over from an abandoned change. It has no vote.
    if let Some(stray) = seen.datastores.iter().find(|one| one.learner) {
        return Next::Act(Action::Remove { id: stray.id });
    }
    let chosen = match choose::choose(seen, limits, now) {
        Err(Waiting::Content) => upgrade::choose(plan, seen, now),
        chosen => chosen,
    };
    match chosen {
        Err(waiting) => Next::Wait(waiting),
        Ok(_) if plan.paused(limits, now) => Next::Wait(Waiting::Pause),
        Ok(_) if plan.finished_within_hour(now) >= limits.most_per_hour => {
            Next::Wait(Waiting::TooMany(plan.finished_within_hour(now)))
        }
        Ok(change) => Next::Store(plan.with(Change {
            number: plan.number + 1,
            started: now,
            ..change
        })),
    }
}

fn proceed(plan: &Plan, change: &Change, seen: &Seen, limits: &Limits, now: Timestamp) -> Next {
    if change.reason == Reason::Upgrade {
        return upgrade::proceed(plan, change, seen, limits, now);
    }
    if let Some(step) = remove_first(plan, change, seen) {
        return step;
    }
    let Some(server) = seen.server(&change.into) else {
        return another_place(plan, change, seen);
    };
    let Some(datastore) = seen.datastore_of(server) else {
        return come(plan, change, server, seen, limits, now);
    };
    let failing = datastore
        .failing_since
        .is_some_and(|since| now.duration_since(since) >= limits.start);
    if datastore.learner {
        return raise(change, server, datastore, seen, failing);
    }
    if !datastore.healthy {
        // It has its vote but is not healthy: the next change handles that.
        return match server.state {
            Liveness::Alive if !failing => Next::Wait(Waiting::Starting(server.name.clone())),
            _ => Next::Store(plan.given_up()),
        };
    }
    remove_last(plan, change, seen, now)
}

/// A dead member is removed before its successor is added: etcd accepts no new
/// member while it counts on an absent one.
fn remove_first(plan: &Plan, change: &Change, seen: &Seen) -> Option<Next> {
    let out = change
        .out
        .as_ref()
        .filter(|_| change.reason == Reason::Dead)?;
    let member = seen.datastore(out.id)?;
    if member.healthy {
        return Some(Next::Store(plan.given_up()));
    }
    // A removal is final: only do it once a replacement is available.
    if !seen
        .server(&change.into)
        .is_some_and(Server::can_take_the_role)
    {
        return Some(another_place(plan, change, seen));
    }
    Some(match seen.majority_without(out.id) {
        true => Next::Act(Action::Remove { id: out.id }),
        false => Next::Wait(Waiting::Unsafe),
    })
}

/// Adds a server to the list. While a voter is away, etcd accepts no new member. If
/// that voter stays away, it has to be replaced before this change can end. The
/// cause of this change is still visible afterwards.
fn come(
    plan: &Plan,
    change: &Change,
    server: &Server,
    seen: &Seen,
    limits: &Limits,
    now: Timestamp,
) -> Next {
    if !server.can_take_the_role() {
        return another_place(plan, change, seen);
    }
    match choose::longest_lost(seen, now) {
        None => Next::Act(Action::AddLearner {
            server: server.name.clone(),
        }),
        Some((_, since)) if now.duration_since(since) >= limits.grace => {
            Next::Store(plan.given_up())
        }
        Some((lost, _)) => Next::Wait(Waiting::Grace(lost.name.clone())),
    }
}

fn raise(
    change: &Change,
    server: &Server,
    learner: &Datastore,
    seen: &Seen,
    failing: bool,
) -> Next {
    if failing || !server.can_take_the_role() {
        // It has no vote, so removing it from the list is always safe. The next
        // step is decided after the removal; another attempt finds no old data.
        return Next::Act(Action::Remove { id: learner.id });
    }
    if server.ordered != Some(learner.id) {
        return Next::Act(Action::Start {
            server: change.into.clone(),
            id: learner.id,
        });
    }
    if !learner.healthy {
        return Next::Wait(Waiting::Starting(change.into.clone()));
    }
    match seen.majority_with_one_more() {
        true => Next::Act(Action::Promote { id: learner.id }),
        false => Next::Wait(Waiting::Unsafe),
    }
}

fn remove_last(plan: &Plan, change: &Change, seen: &Seen, now: Timestamp) -> Next {
    let left_over = change.out.as_ref().and_then(|out| seen.datastore(out.id));
    match left_over {
        None => Next::Store(plan.done(now)),
        Some(out) if seen.majority_without(out.id) => Next::Act(Action::Remove { id: out.id }),
        // Another one failed meanwhile and is more urgent. The cause of this change
        // is still visible and comes up again.
        Some(_) => Next::Store(plan.given_up()),
    }
}

fn another_place(plan: &Plan, change: &Change, seen: &Seen) -> Next {
    let replacement = choose::replacement(seen);
    match replacement {
        Some(into) if into != change.into => Next::Store(plan.with(Change {
            into,
            ..change.clone()
        })),
        // No server can take the role now. The next look starts fresh.
        _ => Next::Store(plan.given_up()),
    }
}
