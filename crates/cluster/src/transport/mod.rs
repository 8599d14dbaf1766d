//! Messages between members, over mutually authenticated TLS.
//!
//! There is one connection per direction and pair. It stays open and behaves like
//! datagrams: a message that cannot be sent soon is dropped, because SWIM repeats
//! it and a late message is worthless. Questions ([`PeerQuestion`]) have their own
//! connection.
//!
//! Rule: the certificate determines who is at the other end, and it must come
//! from the members' authority. See
//! `docs/adr/0007-tls-between-members.md`.

mod connect;
mod frame;
mod listen;
mod send;

use bunraku_model::NodeName;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use connect::{Dialer, RequestError, ask};
pub use listen::{AnswerHandler, ListenError, Listener};
pub use send::Senders;

/// The first message on a connection.
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

/// A SWIM message, and its sender according to the certificate.
#[derive(Clone, Debug)]
pub struct IncomingMessage {
    pub from: NodeName,
    pub data: Bytes,
}

/// A question from one member to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerQuestion {
    /// Asks for the state of the datastore.
    Datastore,
    /// Asks for the member's view of the cluster.
    Sight,
    /// Orders a restart as a cluster of one from the member's own data: the others
    /// are permanently lost. Only valid for an epoch newer than the member's.
    Recover { epoch: u64 },
    /// Declares the member's data outdated: it must never be used again.
    Fence { epoch: u64, endpoints: Vec<String> },
}

/// The answer to a question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerAnswer {
    Datastore(DatastoreReport),
    Sight(bunraku_wire::api::cluster::ClusterView),
    Done { endpoint: Option<String> },
    Refused { why: String },
}

/// A member's report on its datastore.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DatastoreReport {
    pub name: NodeName,
    pub epoch: u64,
    /// The member was ordered to run one.
    pub ordered: bool,
    /// The progress of its data; `None` if it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<DataProgress>,
    /// The voters, as far as it knows.
    pub voters: Vec<String>,
}

/// The progress of a datastore's data. The larger one is the more advanced.
///
/// The data that the datastore knows to be committed decides: that is always a
/// prefix of the one history. The revision comes first, because the index also
/// counts entries without data, and grows in a copy that was opened for reading.
/// The term comes last, because it says nothing about the data: an isolated
/// datastore starts elections again and again, and its term grows while its data
/// does not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DataProgress {
    pub revision: i64,
    pub raft_index: u64,
    pub raft_term: u64,
    /// It is, or has, a leader.
    pub has_leader: bool,
}
