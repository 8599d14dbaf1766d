//! The state of the cluster as one server sees it at one moment.

use bunraku_model::NodeName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Programs;

/// The state of a server according to SWIM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Liveness {
    Alive,
    Suspect,
    Dead,
    Left,
}

/// A server of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    pub name: NodeName,
    pub state: Liveness,
    pub since: Timestamp,
    /// The server may keep data.
    pub eligible: bool,
    /// An operator wants its role to move to another server.
    pub draining: bool,
    /// The address at which its datastore talks to the others.
    pub peer_url: String,
    /// The datastore that it was ordered to run.
    pub ordered: Option<u64>,
    /// The newest change that ordered a restart of its datastore; 0 for none.
    pub restart: u64,
    pub programs: Programs,
}

impl Server {
    pub fn is_alive(&self) -> bool {
        self.state == Liveness::Alive
    }

    /// Returns true if the server can take the role. A suspect may be alive: it
    /// keeps the role that it was given, until it is dead.
    pub fn can_take_the_role(&self) -> bool {
        let lives = matches!(self.state, Liveness::Alive | Liveness::Suspect);
        lives && self.eligible && !self.draining
    }
}

/// A member on etcd's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datastore {
    pub id: u64,
    pub peer_url: String,
    /// On the list, without a vote.
    pub learner: bool,
    /// It answers and has a leader.
    pub healthy: bool,
    /// The time since when it is unhealthy, as far as the observing server knows.
    pub failing_since: Option<Timestamp>,
}

/// All input to a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailoverInput {
    /// The wanted number of datastores.
    pub wanted: usize,
    pub servers: Vec<Server>,
    pub datastores: Vec<Datastore>,
}

pub(super) fn majority_of(voters: usize) -> usize {
    voters / 2 + 1
}

impl FailoverInput {
    pub fn server(&self, name: &NodeName) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == *name)
    }

    pub fn datastore(&self, id: u64) -> Option<&Datastore> {
        self.datastores.iter().find(|one| one.id == id)
    }

    pub fn datastore_of(&self, server: &Server) -> Option<&Datastore> {
        let own = |one: &&Datastore| one.peer_url == server.peer_url;
        self.datastores.iter().find(own)
    }

    pub fn server_of(&self, datastore: &Datastore) -> Option<&Server> {
        let own = |server: &&Server| server.peer_url == datastore.peer_url;
        self.servers.iter().find(own)
    }

    pub fn voters(&self) -> impl Iterator<Item = &Datastore> {
        self.datastores.iter().filter(|one| !one.learner)
    }

    fn healthy_voters(&self) -> usize {
        self.voters().filter(|one| one.healthy).count()
    }

    /// Returns true if the datastores can decide anything at all.
    pub fn has_majority(&self) -> bool {
        let voters = self.voters().count();
        voters > 0 && self.healthy_voters() >= majority_of(voters)
    }

    /// Returns true if they could still decide without this one.
    pub fn majority_without(&self, id: u64) -> bool {
        let stay = || self.voters().filter(|one| one.id != id);
        let healthy = stay().filter(|one| one.healthy).count();
        stay().count() > 0 && healthy >= majority_of(stay().count())
    }

    /// Returns true if they could still decide if one more had a vote and then failed.
    pub fn majority_with_one_more(&self) -> bool {
        let voters = self.voters().count() + 1;
        self.healthy_voters() + 1 >= majority_of(voters)
    }

    /// Returns a server that was ordered to run a datastore which is no longer on
    /// the list. Never returns one that has a vote, whatever its order: it has the
    /// data.
    pub fn to_retire(&self) -> Option<&Server> {
        let votes = |server| self.datastore_of(server).is_some_and(|own| !own.learner);
        self.servers.iter().find(|server| {
            let listed = |id| self.datastore(id).is_some();
            server.ordered.is_some_and(|id| !listed(id)) && !votes(server)
        })
    }
}
