//! The requests of clients, the answers they got, and the times.
//!
//! Times are microseconds since the start, all by one clock: that of the machine on
//! which everything runs, which no fault changes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::incident::Incidents;
pub use crate::incident::Micros;

/// A server, by its number from 0.
pub type Server = usize;

/// The value of a register; `None` before the first write.
pub type Value = Option<String>;

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// Acknowledged.
    Done,
    /// Reported to have had no effect.
    Refused,
    /// It may have been done, and may still be done later.
    Unknown,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    Read {
        key: String,
        value: Value,
    },
    Write {
        key: String,
        value: String,
    },
    Swap {
        key: String,
        from: Value,
        to: String,
    },
    /// Acquires a lock with one holder; `token` if it was granted.
    Acquire {
        lock: String,
        session: String,
        lease: Micros,
        token: Option<u64>,
    },
    /// Releases a lock. The holder is sure of it until this request.
    Release {
        lock: String,
        token: u64,
    },
    /// Defines a thing that is done once.
    Define {
        app: String,
    },
    /// Claims a thing that is done once; `token` if the claim was granted.
    Claim {
        app: String,
        lease: Micros,
        token: Option<u64>,
    },
    /// The claimant reports that it was done.
    Finish {
        app: String,
        token: u64,
    },
    Fire {
        trigger: String,
        firing: String,
        hosts: Vec<String>,
    },
    StartRun {
        run: Option<String>,
    },
}

impl Call {
    /// Returns true if an acknowledgement of it is a decision that others rely on.
    pub fn decides(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    pub client: usize,
    /// The server that was asked; `None` if the store's client chose.
    pub server: Option<Server>,
    pub begun: Micros,
    pub ended: Micros,
    #[serde(flatten)]
    pub call: Call,
    pub outcome: CallOutcome,
    /// The id of the request, if it went to a server's API and changes something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// A time in which no packet passed from one side to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NetworkCut {
    /// All links were cut by this time.
    pub begun: Micros,
    /// No link was restored before this time.
    pub ended: Micros,
    pub sides: Vec<BTreeSet<Server>>,
}

/// A node run that really happened, as recorded by its own script.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRun {
    pub node: String,
    pub id: String,
    pub begun: Micros,
    pub ended: Micros,
    /// The firings that it served.
    pub firings: BTreeSet<String>,
    /// The number of further firings, which it only counts.
    #[serde(default)]
    pub more: u64,
    /// The ordered run that it belongs to.
    pub run: Option<String>,
}

/// The result of an ordered run, as reported by the servers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunEnd {
    pub succeeded: bool,
}

/// A change of the datastores, as reported by the servers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    pub at: Micros,
    pub by: Server,
    pub what: String,
}

/// The id of all requests that prepare a run or ask how it ended.
pub const SETUP_REQUEST: &str = "setup";

/// A record of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditedAction {
    pub number: u64,
    pub id: String,
    pub who: String,
    pub role: String,
    pub request: Option<String>,
    pub action: String,
    pub object: Option<String>,
    /// `succeeded`, `refused`, `failed` or `unknown`.
    pub outcome: String,
}

/// The audit log at the end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AuditTrail {
    /// The reason why the chain is not intact, or does not continue what was seen before.
    pub broken: Option<String>,
    /// The names of all servers.
    pub servers: BTreeSet<String>,
    pub records: Vec<AuditedAction>,
}

/// The servers' final answers after all faults are repaired.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// The token under which each thing was done, if it was.
    pub done: BTreeMap<String, Option<u64>>,
    /// Triggers that were reported as not applied, by node.
    pub reported: BTreeSet<(String, String)>,
    pub runs: BTreeMap<String, RunEnd>,
    /// Only from servers whose clocks were right all the time.
    pub changes: Vec<Change>,
    #[serde(default)]
    pub audit: Option<AuditTrail>,
    /// The hash of each datastore's data, at one revision.
    pub hashes: BTreeMap<String, u64>,
}

/// All input of the checkers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    pub operations: Vec<Operation>,
    pub cuts: Vec<NetworkCut>,
    pub node_runs: Vec<NodeRun>,
    /// Pairs of nodes of an ordered run, where one waits for the other.
    pub order: Vec<(String, String)>,
    #[serde(default)]
    pub incidents: Incidents,
    pub end: End,
}

impl History {
    /// Returns the acknowledged calls.
    pub fn acknowledged(&self) -> impl Iterator<Item = &Operation> {
        let operations = self.operations.iter();
        operations.filter(|operation| operation.outcome == CallOutcome::Done)
    }
}
