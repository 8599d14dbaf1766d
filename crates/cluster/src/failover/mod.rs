//! Decides what to do when a datastore is lost, as a pure function.
//!
//! [`next`] takes the current state and the [`DatastorePlan`] in the store, and returns the
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
mod cluster_state;
mod plan;
mod upgrade;

use jiff::{SignedDuration, Timestamp};

pub use choose::target;
pub use cluster_state::{Datastore, FailoverInput, Liveness, Server};
pub use plan::{ChangeReason, DatastoreChange, DatastorePlan, OutgoingMember};
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
pub enum WaitReason {
    #[error("nothing to do")]
    Content,
    #[error("too few datastores answer: no changes without a majority")]
    NoMajority,
    #[error("{0} may still return on its own")]
    Grace(bunraku_model::NodeName),
    #[error("a change ended a moment ago")]
    Pause,
    #[error("{0} changes within an hour: automatic changes are suspended")]
    TooMany(usize),
    #[error("cannot replace {0}: no other server is alive and eligible")]
    NoReplacement(bunraku_model::NodeName),
    #[error("{0} is starting its datastore")]
    Starting(bunraku_model::NodeName),
    #[error("etcd {version} is installed on {server} but not started: {why}")]
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
pub enum NextStep {
    /// Store this plan in place of the one that was read, then decide again.
    Store(DatastorePlan),
    Act(Action),
    Wait(WaitReason),
}

/// Decides the next step.
pub fn next(
    plan: &DatastorePlan,
    seen: &FailoverInput,
    limits: &Limits,
    now: Timestamp,
) -> NextStep {
    if !seen.has_majority() {
        return NextStep::Wait(WaitReason::NoMajority);
    }
    if let Some(server) = seen.to_retire() {
        return NextStep::Act(Action::Retire {
            server: server.name.clone(),
        });
    }
    match &plan.current {
        Some(change) => proceed(plan, change, seen, limits, now),
        None => begin(plan, seen, limits, now),
    }
}

fn begin(plan: &DatastorePlan, seen: &FailoverInput, limits: &Limits, now: Timestamp) -> NextStep {
    // Left over from an abandoned change. It has no vote.
    if let Some(stray) = seen.datastores.iter().find(|one| one.learner) {
        return NextStep::Act(Action::Remove { id: stray.id });
    }
    let chosen = match choose::choose(seen, limits, now) {
        Err(WaitReason::Content) => upgrade::choose(plan, seen, now),
        chosen => chosen,
    };
    match chosen {
        Err(waiting) => NextStep::Wait(waiting),
        Ok(_) if plan.paused(limits, now) => NextStep::Wait(WaitReason::Pause),
        Ok(_) if plan.finished_within_hour(now) >= limits.most_per_hour => {
            NextStep::Wait(WaitReason::TooMany(plan.finished_within_hour(now)))
        }
        Ok(change) => NextStep::Store(plan.with(DatastoreChange {
            number: plan.number + 1,
            started: now,
            ..change
        })),
    }
}

fn proceed(
    plan: &DatastorePlan,
    change: &DatastoreChange,
    seen: &FailoverInput,
    limits: &Limits,
    now: Timestamp,
) -> NextStep {
    if change.reason == ChangeReason::Upgrade {
        return upgrade::proceed(plan, change, seen, limits.start, now);
    }
    if let Some(step) = remove_first(plan, change, seen) {
        return step;
    }
    let Some(server) = seen.server(&change.into) else {
        return another_place(plan, change, seen);
    };
    let Some(datastore) = seen.datastore_of(server) else {
        return add_server(plan, change, server, seen, limits, now);
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
            Liveness::Alive if !failing => {
                NextStep::Wait(WaitReason::Starting(server.name.clone()))
            }
            _ => NextStep::Store(plan.without_change()),
        };
    }
    remove_last(plan, change, seen, now)
}

/// A dead member is removed before its successor is added: etcd accepts no new
/// member while it counts on an absent one.
fn remove_first(
    plan: &DatastorePlan,
    change: &DatastoreChange,
    seen: &FailoverInput,
) -> Option<NextStep> {
    let out = change
        .out
        .as_ref()
        .filter(|_| change.reason == ChangeReason::Dead)?;
    let member = seen.datastore(out.id)?;
    if member.healthy {
        return Some(NextStep::Store(plan.without_change()));
    }
    // A removal is final: only do it once a replacement is available.
    if !seen
        .server(&change.into)
        .is_some_and(Server::can_take_the_role)
    {
        return Some(another_place(plan, change, seen));
    }
    Some(if seen.majority_without(out.id) {
        NextStep::Act(Action::Remove { id: out.id })
    } else {
        NextStep::Wait(WaitReason::Unsafe)
    })
}

/// Adds a server to the list. While a voter is away, etcd accepts no new member. If
/// that voter stays away, it has to be replaced before this change can end. The
/// cause of this change is still visible afterwards.
fn add_server(
    plan: &DatastorePlan,
    change: &DatastoreChange,
    server: &Server,
    seen: &FailoverInput,
    limits: &Limits,
    now: Timestamp,
) -> NextStep {
    if !server.can_take_the_role() {
        return another_place(plan, change, seen);
    }
    match choose::longest_lost(seen, now) {
        None => NextStep::Act(Action::AddLearner {
            server: server.name.clone(),
        }),
        Some((_, since)) if now.duration_since(since) >= limits.grace => {
            NextStep::Store(plan.without_change())
        }
        Some((lost, _)) => NextStep::Wait(WaitReason::Grace(lost.name.clone())),
    }
}

fn raise(
    change: &DatastoreChange,
    server: &Server,
    learner: &Datastore,
    seen: &FailoverInput,
    failing: bool,
) -> NextStep {
    if failing || !server.can_take_the_role() {
        // It has no vote, so removing it from the list is always safe. The next
        // step is decided after the removal; another attempt finds no old data.
        return NextStep::Act(Action::Remove { id: learner.id });
    }
    if server.ordered != Some(learner.id) {
        return NextStep::Act(Action::Start {
            server: change.into.clone(),
            id: learner.id,
        });
    }
    if !learner.healthy {
        return NextStep::Wait(WaitReason::Starting(change.into.clone()));
    }
    if seen.majority_with_one_more() {
        NextStep::Act(Action::Promote { id: learner.id })
    } else {
        NextStep::Wait(WaitReason::Unsafe)
    }
}

fn remove_last(
    plan: &DatastorePlan,
    change: &DatastoreChange,
    seen: &FailoverInput,
    now: Timestamp,
) -> NextStep {
    let left_over = change.out.as_ref().and_then(|out| seen.datastore(out.id));
    match left_over {
        None => NextStep::Store(plan.with_change_done(now)),
        Some(out) if seen.majority_without(out.id) => NextStep::Act(Action::Remove { id: out.id }),
        // Another one failed meanwhile and is more urgent. The cause of this change
        // is still visible and comes up again.
        Some(_) => NextStep::Store(plan.without_change()),
    }
}

fn another_place(plan: &DatastorePlan, change: &DatastoreChange, seen: &FailoverInput) -> NextStep {
    let replacement = choose::replacement(seen);
    match replacement {
        Some(into) if into != change.into => NextStep::Store(plan.with(DatastoreChange {
            into,
            ..change.clone()
        })),
        // No server can take the role now. The next look starts fresh.
        _ => NextStep::Store(plan.without_change()),
    }
}
