//! What all parts of a run share: the nodes, the limits that matter to the checker, and the error.

use std::time::Duration;

use bunraku_wire::ClientError;

use crate::tool::ToolError;

/// A generous time limit for everything that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);

/// The budget of each node on each server: requests per second, and at once.
pub(crate) const FLOOD_RATE: u64 = 10;
pub(crate) const FLOOD_BURST: u64 = 20;
/// Nodes that really run things, each after the one before it in ordered runs.
pub(crate) const AGENTS: [&str; 3] = ["n1", "n2", "n3"];
/// Nodes that are only written to.
pub(crate) const REGISTERS: [&str; 2] = ["register-1", "register-2"];

/// The reason why a run could not start or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("`bunraku {command}`: {message}")]
    Command { command: String, message: String },
    #[error("{0}")]
    Late(String),
    #[error("a request failed")]
    Request(#[from] ClientError),
    #[error("{0}")]
    Setup(String),
}
