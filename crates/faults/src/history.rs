//! What clients asked for, what they were told, and when.
//!
//! Times are microseconds since the start, all by one clock: that of the
//! machine on which everything runs, which no fault touches.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Microseconds since the start.
pub type Micros = u64;

/// A server, by its number from 0.
pub type Server = usize;

/// The value of a register; nothing before the first write.
pub type Value = Option<String>;

/// What became of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Acknowledged.
    Done,
    /// Said to have had no effect.
    Refused,
    /// It may have been done, and may yet be.
    Unknown,
}

/// What was asked for.
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
    /// A lock with one holder; `token` when it was given.
    Acquire {
        lock: String,
        session: String,
        lease: Micros,
        token: Option<u64>,
    },
    /// The holder is sure until it asks for this.
    Release {
        lock: String,
        token: u64,
    },
    /// A thing that is done once; `token` when the claim was granted.
    Claim {
        app: String,
        lease: Micros,
        token: Option<u64>,
    },
    /// It was done, says the claimant.
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
    /// Whether an acknowledgement of it is a decision that others rely on.
    pub fn decides(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    pub client: usize,
    /// The server that was asked; none where the store's client chose.
    pub server: Option<Server>,
    pub begun: Micros,
    pub ended: Micros,
    #[serde(flatten)]
    pub call: Call,
    pub outcome: Outcome,
}

/// A time in which no packet went from one side to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cut {
    /// All links were cut by then …
    pub begun: Micros,
    /// … and none was mended before this.
    pub ended: Micros,
    pub sides: Vec<BTreeSet<Server>>,
}

/// A node run that really took place, as its own script wrote it down.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRun {
    pub node: String,
    pub id: String,
    pub begun: Micros,
    pub ended: Micros,
    /// Firings that it served.
    pub firings: BTreeSet<String>,
    /// Further ones, that it only counts.
    #[serde(default)]
    pub more: u64,
    /// The ordered run that it was a part of.
    pub run: Option<String>,
}

/// How an ordered run went, by the servers' word.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunEnd {
    pub succeeded: bool,
}

/// A change of the datastores, by the servers' word.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    pub at: Micros,
    pub by: Server,
    pub what: String,
}

/// What the servers say once all is mended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// The token under which each thing was done, if it was.
    pub done: BTreeMap<String, Option<u64>>,
    /// Triggers that were reported as not carried out, by node.
    pub reported: BTreeSet<(String, String)>,
    pub runs: BTreeMap<String, RunEnd>,
    /// Only by servers whose clocks were right all the time.
    pub changes: Vec<Change>,
    /// The hash of each datastore's data, at one revision.
    pub hashes: BTreeMap<String, u64>,
}

/// Everything that a checker needs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    pub operations: Vec<Operation>,
    pub cuts: Vec<Cut>,
    pub node_runs: Vec<NodeRun>,
    /// Which node of an ordered run waits for which.
    pub order: Vec<(String, String)>,
    pub end: End,
}

impl History {
    /// Acknowledged calls.
    pub fn acknowledged(&self) -> impl Iterator<Item = &Operation> {
        let operations = self.operations.iter();
        operations.filter(|operation| operation.outcome == Outcome::Done)
    }
}
