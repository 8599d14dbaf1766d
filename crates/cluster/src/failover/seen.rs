//! What one server sees at one moment.

use bunraku_model::NodeName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Programs;

/// What SWIM says of a server.
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
    /// May keep data.
    pub eligible: bool,
    /// An operator wants its role to move away.
    pub draining: bool,
    /// Where its datastore speaks with the others.
    pub peer_url: String,
    /// The datastore that it was told to run.
    pub ordered: Option<u64>,
    /// The newest change that told it to start its datastore anew; 0 for none.
    pub restart: u64,
    pub programs: Programs,
}

impl Server {
    pub fn is_alive(&self) -> bool {
        self.state == Liveness::Alive
    }

    /// A suspect may be alive: it keeps the role that it was given, until it is dead.
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
    /// It answers, and knows a leader.
    pub healthy: bool,
    /// Since when it is not healthy, as far as the one who looks knows.
    pub failing_since: Option<Timestamp>,
}

/// Everything that a decision looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// How many datastores there should be.
    pub wanted: usize,
    pub servers: Vec<Server>,
    pub datastores: Vec<Datastore>,
}

pub(super) fn majority_of(voters: usize) -> usize {
    voters / 2 + 1
}

impl Seen {
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

    /// Whether the datastores can decide anything at all.
    pub fn has_majority(&self) -> bool {
        let voters = self.voters().count();
        voters > 0 && self.healthy_voters() >= majority_of(voters)
    }

    /// Whether they still could without this one.
    pub fn majority_without(&self, id: u64) -> bool {
        let stay = || self.voters().filter(|one| one.id != id);
        let healthy = stay().filter(|one| one.healthy).count();
        stay().count() > 0 && healthy >= majority_of(stay().count())
    }

    /// Whether they still could if one more had a vote, and then failed to use it.
    pub fn majority_with_one_more(&self) -> bool {
        let voters = self.voters().count() + 1;
        self.healthy_voters() + 1 >= majority_of(voters)
    }

    /// A server that was told to run a datastore which is on the list no more.
    /// Never one that has a vote, whatever it was told: the data is there.
    pub fn to_retire(&self) -> Option<&Server> {
        let votes = |server| self.datastore_of(server).is_some_and(|own| !own.learner);
        self.servers.iter().find(|server| {
            let listed = |id| self.datastore(id).is_some();
            server.ordered.is_some_and(|id| !listed(id)) && !votes(server)
        })
    }
}
