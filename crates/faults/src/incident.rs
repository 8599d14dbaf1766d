//! What hostile or frozen nodes did during a run, and what became of it.
//!
//! Calls of ordinary clients are in [`crate::history`]; these are recorded as a whole.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Microseconds since the start.
pub type Micros = u64;

/// All incidents of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Incidents {
    pub floods: Vec<Flood>,
    pub freezes: Vec<Freeze>,
    pub thefts: Vec<Theft>,
    /// Times in which a server handled every message late.
    pub lateness: Vec<Lateness>,
}

impl fmt::Display for Incidents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let floods = self.floods.iter();
        let (accepted, refused) = floods.fold((0, 0), |(accepted, refused), flood| {
            (accepted + flood.accepted, refused + flood.refused)
        });
        let renewals = self.thefts.iter().map(|theft| theft.renewals.len());
        let late = self.lateness.iter().map(|late| late.messages);
        write!(
            f,
            "{} floods ({accepted} accepted, {refused} refused), {} frozen agents, \
             {} revocations ({} renewals before), {} late messages",
            self.floods.len(),
            self.freezes.len(),
            self.thefts.len(),
            renewals.sum::<usize>(),
            late.sum::<u64>()
        )
    }
}

/// A node that sent writes to one server as fast as it could.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Flood {
    pub begun: Micros,
    pub ended: Micros,
    /// True if nothing else was broken meanwhile.
    pub alone: bool,
    pub sent: u64,
    pub accepted: u64,
    /// Requests refused because of the node's budget.
    pub refused: u64,
    /// The number of requests that the budget allows in this time.
    pub allowed: u64,
}

/// An agent that was stopped, with its connection open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Freeze {
    pub node: String,
    pub begun: Micros,
    /// When servers said that it is lost; `None` if they never did.
    pub noticed: Option<Micros>,
    pub ended: Micros,
}

/// A certificate that was renewed in a loop while an operator revoked it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Theft {
    pub node: String,
    /// When the revocation was acknowledged; `None` if it never was.
    pub revoked: Option<Micros>,
    /// When each successful renewal was requested.
    pub renewals: Vec<Micros>,
    /// Servers that accepted one of its certificates at the end.
    pub accepted_by: Vec<String>,
}

/// A server whose messages were late.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Lateness {
    pub server: String,
    /// The number of messages that were delayed.
    pub messages: u64,
}
