//! Where a node stands: is it there, may it run, does it run.
//!
//! Three questions with one writer each: the connection is written by the
//! server that holds it, the administration by operators, the activity by the
//! node itself. [`NodeStatus::word`] folds them into the one word that lists show.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ServerId;

/// Is the node's agent on the line?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Connection {
    /// Its certificate was signed, and it never connected.
    Never { since: Timestamp },
    /// Its command stream is open.
    Connected { since: Timestamp, server: ServerId },
    /// It was connected and is not any more.
    Lost { since: Timestamp, reason: String },
}

/// May the node run?
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

/// What the node's agent does now, by its own word.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Activity {
    Idle { since: Timestamp },
    Running { since: Timestamp, what: String },
}

/// All three answers for one node.
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
    /// Signed, never seen.
    New,
    Idle,
    Running,
    Disabled,
    Lost,
}

impl NodeStatus {
    /// The most telling word, and since when it holds.
    ///
    /// Lost comes before disabled: of a node that is away nobody knows more.
    pub fn word(&self) -> (StatusWord, Timestamp) {
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
