//! The change in progress, as it is stored.

use bunraku_model::NodeName;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Limits, Program};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// More end times than any limit needs.
const REMEMBERED: usize = 100;

/// The reason for a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeReason {
    /// A datastore's server is dead.
    Dead,
    /// An operator wants to move the role to another server.
    Drain,
    /// There should be more datastores.
    Grow,
    /// Another etcd is installed: the same datastore is restarted.
    Upgrade,
}

/// The member to remove.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutgoingMember {
    pub id: u64,
    pub name: NodeName,
}

/// One datastore goes and one comes, or one only comes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DatastoreChange {
    pub number: u64,
    pub reason: ChangeReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<OutgoingMember>,
    pub into: NodeName,
    /// The program that the datastore is restarted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    pub started: Timestamp,
}

/// The plan for the datastores that the servers agreed on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DatastorePlan {
    /// The number of the newest change.
    #[serde(default)]
    pub number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<DatastoreChange>,
    /// The times at which changes ended, the newest last.
    #[serde(default)]
    pub ended: Vec<Timestamp>,
    /// The content hashes of programs with which a datastore did not come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

impl DatastorePlan {
    pub(super) fn with(&self, change: DatastoreChange) -> Self {
        Self {
            number: change.number,
            current: Some(change),
            ..self.clone()
        }
    }

    pub(super) fn without_change(&self) -> Self {
        Self {
            current: None,
            ..self.clone()
        }
    }

    /// Abandons the change. No datastore is restarted with this program from now on.
    pub(super) fn refusing(&self, program: Option<&Program>) -> Self {
        let mut refusing = self.without_change();
        refusing
            .refused
            .extend(program.map(|it| it.content.clone()));
        let extra = refusing.refused.len().saturating_sub(REMEMBERED);
        refusing.refused.drain(..extra);
        refusing
    }

    pub(super) fn with_change_done(&self, now: Timestamp) -> Self {
        let mut done = self.without_change();
        done.ended.push(now);
        let extra = done.ended.len().saturating_sub(REMEMBERED);
        done.ended.drain(..extra);
        done
    }

    pub(super) fn paused(&self, limits: &Limits, now: Timestamp) -> bool {
        // A clock that was set back must not block changes forever.
        let age = |ended: &Timestamp| now.duration_since(*ended).abs();
        self.ended
            .last()
            .is_some_and(|last| age(last) < limits.pause)
    }

    pub(super) fn finished_within_hour(&self, now: Timestamp) -> usize {
        let recent = |ended: &&Timestamp| now.duration_since(**ended).abs() < HOUR;
        self.ended.iter().filter(recent).count()
    }
}
