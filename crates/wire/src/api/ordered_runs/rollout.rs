//! Safe rollout: the checks between the parts of a run, and what a run is waiting for.

use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A check that must pass before the next part of a run starts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "check", rename_all = "snake_case")]
pub enum RolloutCheck {
    /// An operator confirms it.
    Manual,
    /// A server requests this URL. It passes with a status of 200 to 299.
    Http { url: String },
    /// A query for nodes. It passes if it finds none of the nodes that have run.
    Query { query: String },
    /// A command on the machine of the operator who started the run, executed by the command line
    /// there. No server and no node executes it. It passes with exit code 0.
    Command { command: String },
}

/// The error for text that is not a check.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a check: use `manual`, a URL, `query:QUERY` or `command:COMMAND`")]
pub struct CheckError(String);

impl RolloutCheck {
    /// Returns `true` if a server performs it.
    pub fn is_automatic(&self) -> bool {
        matches!(self, Self::Http { .. } | Self::Query { .. })
    }
}

impl FromStr for RolloutCheck {
    type Err = CheckError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let given = |rest: &str| (!rest.trim().is_empty()).then(|| rest.trim().to_owned());
        let check = if text == "manual" {
            Some(Self::Manual)
        } else if text.starts_with("http://") || text.starts_with("https://") {
            Some(Self::Http {
                url: text.to_owned(),
            })
        } else if let Some(rest) = text.strip_prefix("query:") {
            given(rest).map(|query| Self::Query { query })
        } else {
            let rest = text.strip_prefix("command:").and_then(given);
            rest.map(|command| Self::Command { command })
        };
        check.ok_or_else(|| CheckError(text.to_owned()))
    }
}

impl std::fmt::Display for RolloutCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Manual => f.write_str("manual"),
            Self::Http { url } => f.write_str(url),
            Self::Query { query } => write!(f, "query:{query}"),
            Self::Command { command } => write!(f, "command:{command}"),
        }
    }
}

/// Something that a run is waiting for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "waits_for", rename_all = "snake_case")]
pub enum RunWait {
    /// Someone other than the requester has to approve it.
    Approval {
        approval: String,
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    /// Its time, or earlier runs on its nodes.
    Turn,
    /// These nodes are running.
    Nodes { running: usize },
    /// The nodes that have run are observed.
    Soak {
        gate: u32,
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    /// A check.
    Check {
        gate: u32,
        check: u32,
        what: RolloutCheck,
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    /// As many nodes are unavailable as may be.
    Unavailable { nodes: usize },
    /// The current batch, by the fact that forms batches.
    Batch { batch: String },
}

impl std::fmt::Display for RunWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Approval { approval, until } => write!(
                f,
                "approval {approval}, until {until:.0} (`bunraku approval approve {approval}`)"
            ),
            Self::Turn => f.write_str("its turn"),
            Self::Nodes { running: 1 } => f.write_str("1 running node"),
            Self::Nodes { running } => write!(f, "{running} running nodes"),
            Self::Soak { until, .. } => write!(f, "the end of the soak time at {until:.0}"),
            Self::Check {
                what: RolloutCheck::Manual,
                until,
                ..
            } => write!(f, "confirmation until {until:.0}"),
            Self::Check { what, until, .. } => write!(f, "the check `{what}`, until {until:.0}"),
            Self::Unavailable { nodes: 1 } => f.write_str("1 unavailable node"),
            Self::Unavailable { nodes } => write!(f, "{nodes} unavailable nodes"),
            Self::Batch { batch } => write!(f, "the end of batch {batch}"),
        }
    }
}

/// The result of a manual or command check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckResult {
    /// The gate, as in [`RunWait::Check`]. Default: the one that the run is waiting at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<u32>,
    /// The check. Default: the first one that is not performed by a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<u32>,
    pub passed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
