//! The status of a node: its connection, its administration and its activity.
//!
//! Each part has one writer: the server that holds the connection writes the connection, operators
//! write the administration, and the node itself writes the activity. [`NodeStatus::status`] combines
//! them into the one word that lists show.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ServerId;

/// The connection of the node's agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Connection {
    /// Its certificate was signed, but it never connected.
    Never { since: Timestamp },
    /// Its command stream is open.
    Connected { since: Timestamp, server: ServerId },
    /// It was connected and no longer is.
    Lost { since: Timestamp, reason: String },
}

/// The permission of the node to run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Administration {
    Enabled {
        since: Timestamp,
    },
    Disabled {
        since: Timestamp,
        reason: String,
        by: String,
    },
}

/// The current activity of the node's agent, as the agent reports it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Activity {
    Idle { since: Timestamp },
    Running { since: Timestamp, what: String },
}

/// The three parts of one node's status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    pub connection: Connection,
    pub administration: Administration,
    pub activity: Activity,
}

/// The word that lists show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusWord {
    /// Signed, but never connected.
    New,
    Idle,
    Running,
    Disabled,
    Lost,
}

impl NodeStatus {
    /// Returns the most informative word, and the time since which it applies.
    ///
    /// Lost comes before disabled: nothing more is known about a node that is away.
    pub fn status(&self) -> (StatusWord, Timestamp) {
        match (&self.connection, &self.administration, &self.activity) {
            (Connection::Never { since }, _, _) => (StatusWord::New, *since),
            (Connection::Lost { since, .. }, _, _) => (StatusWord::Lost, *since),
            (_, Administration::Disabled { since, .. }, _) => (StatusWord::Disabled, *since),
            (_, _, Activity::Running { since, .. }) => (StatusWord::Running, *since),
            (
                Connection::Connected {
                    since: connected, ..
                },
                _,
                Activity::Idle { since },
            ) => (StatusWord::Idle, (*since).max(*connected)),
        }
    }
}

impl StatusWord {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Disabled => "disabled",
            Self::Lost => "lost",
        }
    }
}
