//! Chooses the datastore to restart because another etcd is installed there.
//!
//! One at a time, and only while all are healthy. etcd upgrades by one minor
//! version at a time and never downgrades. Any other installed version is left
//! alone and reported. A program with which a datastore did not come back is not
//! tried again anywhere.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::cluster_state::{FailoverInput, Server, majority_of};
use super::plan::{ChangeReason, DatastoreChange, DatastorePlan};
use super::{Action, NextStep, WaitReason};

/// An etcd program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    /// The hash of its file.
    pub content: String,
    /// The version that it prints, or `None` if it cannot be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Program {
    pub(crate) fn version(&self) -> &str {
        self.version.as_deref().unwrap_or("of unknown version")
    }

    fn minor(&self) -> Option<(u64, u64)> {
        let mut numbers = self.version.as_deref()?.split('.');
        let mut number = || numbers.next()?.parse().ok();
        Some((number()?, number()?))
    }
}

/// The etcd that runs on a server, and the one that is installed there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Programs {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Program>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<Program>,
}

impl Programs {
    /// Returns the running and the installed program if they differ.
    fn differing(&self) -> Option<(&Program, &Program)> {
        let (running, installed) = (self.running.as_ref()?, self.installed.as_ref()?);
        (running.content != installed.content).then_some((running, installed))
    }
}

/// Returns the next datastore to restart, or the reason why there is none.
pub(super) fn choose(
    plan: &DatastorePlan,
    seen: &FailoverInput,
    now: Timestamp,
) -> Result<DatastoreChange, WaitReason> {
    let mut waiting = WaitReason::Content;
    let mut servers: Vec<&Server> = seen.voters().filter_map(|it| seen.server_of(it)).collect();
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    for server in servers {
        let Some((running, installed)) = server.programs.differing() else {
            continue;
        };
        let why = match may_follow(seen, running, installed) {
            Err(why) => why,
            Ok(()) if plan.refused.contains(&installed.content) => {
                "a datastore did not start with it".to_owned()
            }
            Ok(()) if seen.voters().count() < 3 => {
                "the data would be unavailable meanwhile; restart the server at a suitable time"
                    .to_owned()
            }
            Ok(()) if !all_well(seen) => "all datastores must be healthy first".to_owned(),
            Ok(()) => return Ok(restart(server, installed, now)),
        };
        waiting = WaitReason::Upgrade {
            server: server.name.clone(),
            version: installed.version().to_owned(),
            why,
        };
    }
    Err(waiting)
}

fn restart(server: &Server, installed: &Program, now: Timestamp) -> DatastoreChange {
    DatastoreChange {
        number: 0,
        reason: ChangeReason::Upgrade,
        out: None,
        into: server.name.clone(),
        program: Some(installed.clone()),
        started: now,
    }
}

/// Returns true if every datastore answers, every server of one is alive, and a
/// majority remains without any one of them.
fn all_well(seen: &FailoverInput) -> bool {
    let well = seen.datastores.iter().all(|one| {
        let lives = seen.server_of(one).is_some_and(Server::is_alive);
        one.healthy && !one.learner && lives
    });
    let voters = seen.voters().count();
    well && voters > majority_of(voters)
}

fn may_follow(seen: &FailoverInput, running: &Program, installed: &Program) -> Result<(), String> {
    let Some(wanted) = installed.minor() else {
        return Err("it cannot be run, or does not report its version".to_owned());
    };
    let mut lowest = wanted;
    for server in seen.voters().filter_map(|one| seen.server_of(one)) {
        let runs = server.programs.running.as_ref().and_then(Program::minor);
        let Some(runs) = runs else {
            return Err(format!("the version that {} runs is unknown", server.name));
        };
        lowest = lowest.min(runs);
    }
    if running.minor().is_some_and(|runs| wanted < runs) {
        return Err(format!(
            "etcd cannot be downgraded from {}",
            running.version()
        ));
    }
    let (major, minor) = lowest;
    if wanted.0 != major || wanted.1 > minor + 1 {
        return Err(format!(
            "etcd {major}.{minor} must be upgraded to {major}.{} first",
            minor + 1
        ));
    }
    Ok(())
}

/// Continues a restart that was decided.
pub(super) fn proceed(
    plan: &DatastorePlan,
    change: &DatastoreChange,
    seen: &FailoverInput,
    time_to_start: SignedDuration,
    now: Timestamp,
) -> NextStep {
    let server = seen.server(&change.into);
    let datastore = server.and_then(|server| seen.datastore_of(server));
    let (Some(server), Some(datastore)) = (server, datastore) else {
        return NextStep::Store(plan.without_change());
    };
    if server.restart != change.number {
        // Anything that happened since the decision is more urgent.
        return if all_well(seen) {
            NextStep::Act(Action::Restart {
                server: server.name.clone(),
                number: change.number,
            })
        } else {
            NextStep::Store(plan.without_change())
        };
    }
    let runs = server.programs.running.is_some() && server.programs.differing().is_none();
    if runs && datastore.healthy {
        return NextStep::Store(plan.with_change_done(now));
    }
    if now.duration_since(change.started).abs() < time_to_start {
        return NextStep::Wait(WaitReason::Starting(server.name.clone()));
    }
    NextStep::Store(plan.refusing(change.program.as_ref()))
}
