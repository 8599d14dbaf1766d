//! Messages between members, over mutually authenticated TLS.
//!
//! One connection per direction and pair, kept open, with the manners of
//! datagrams: what cannot be sent soon is dropped, because SWIM says it again
//! and a late message is worth nothing. Questions ([`Question`]) have a
//! connection of their own.
//!
//! Rule: who is at the other end is what its certificate says, and the
//! certificate comes from the members' authority. See
//! `docs/adr/0007-tls-between-members.md`.

mod connect;
mod frame;
mod listen;
mod send;

use bunraku_model::NodeName;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use connect::{AskError, Dialer, ask};
pub use listen::{Answerer, ListenError, Listener};
pub use send::Senders;

/// What a connection begins with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Hello {
    cluster: String,
    epoch: u64,
    purpose: Purpose,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Purpose {
    Gossip,
    Question,
}

/// A SWIM message, and who sent it by its certificate.
#[derive(Clone, Debug)]
pub struct Incoming {
    pub from: NodeName,
    pub data: Bytes,
}

/// What one member may ask another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How is your datastore?
    Datastore,
    /// What do you see?
    Sight,
    /// Start anew, alone, from what you have: the others are gone for good.
    /// Only for an epoch that is newer than yours.
    Recover { epoch: u64 },
    /// Your data is of the past: never use it again.
    Fence { epoch: u64, endpoints: Vec<String> },
}

/// What it answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Datastore(DatastoreReport),
    Sight(bunraku_wire::api::cluster::ClusterSight),
    Done { endpoint: Option<String> },
    Refused { why: String },
}

/// What a member says of its datastore.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DatastoreReport {
    pub name: NodeName,
    pub epoch: u64,
    /// It was told to run one.
    pub ordered: bool,
    /// How far its data goes; nothing when it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// How many have a vote, as it knows.
    pub voters: Vec<String>,
}

/// How far the data of a datastore goes. The larger is the more advanced.
///
/// What counts is how much it knows to be committed: that is a beginning of
/// the one history, whoever has it. The revision comes first, because the index
/// also counts what is no data, and grows in a copy that was opened to be read.
/// The term comes last, because it says nothing of the data: one that was alone stands for election again and
/// again, and its term grows while its data does not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Progress {
    pub revision: i64,
    pub raft_index: u64,
    pub raft_term: u64,
    /// It has, or hears, a leader.
    pub has_leader: bool,
}
