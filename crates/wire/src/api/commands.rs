//! Commands for nodes: sent once, delivered until they are answered.

use bunraku_model::{Administration, CommandId, NodeName, NodeRunId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{RunRequest, Target};

/// What a node can be asked to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Command {
    /// Answer.
    Ping,
    /// Collect facts and submit them now.
    RefreshFacts,
    /// Take a run into the node's queue. The answer says that the queue has
    /// it, durably; how it went is in the report with its id.
    Run(Box<RunRequest>),
    /// Take a run out of the queue, or end it if it is at work.
    CancelRun {
        #[schema(value_type = String)]
        run: NodeRunId,
        reason: String,
    },
    /// An operator disabled or enabled the node.
    Administer {
        #[schema(value_type = Object)]
        administration: Administration,
    },
}

/// A command on its way to one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Envelope {
    #[schema(value_type = String)]
    pub id: CommandId,
    pub command: Command,
    pub sent_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub sent: Timestamp,
    /// After this it is not carried out any more.
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
}

/// One line of a node's command stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum StreamMessage {
    /// The stream is open, and everything that waited follows.
    Welcome {
        server: String,
    },
    Command(Envelope),
    /// What the node should look like changed: fetch it when it suits. Sent
    /// once when the stream opens, and at every change.
    Target {
        target: Option<Target>,
    },
    /// Which ordered run has the node for itself. Sent when the stream opens
    /// if there is one, at every change, and again while it holds.
    Hold {
        hold: Option<NodeHold>,
    },
    /// The servers of the cluster changed: `HOST:PORT` of each.
    Servers {
        servers: Vec<String>,
    },
    /// Another agent with the same certificate connected.
    Superseded,
    /// The server shuts down: go to the next one.
    Goodbye,
}

/// An ordered run has the node for itself: the node starts no other run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeHold {
    #[schema(value_type = String)]
    pub run: RunId,
    /// Good for so long by the node's own monotonic clock, unless it is said again.
    pub seconds: u64,
}

/// Send one command to some nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SendCommand {
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
    pub command: Command,
    /// How long it may wait for a node that is away.
    pub ttl_seconds: u64,
}

/// Its id on each node, in the order of the request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SentCommand {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = String)]
    pub id: CommandId,
}

/// The node's answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CommandResult {
    pub outcome: CommandOutcome,
    pub message: String,
    #[schema(value_type = String, format = DateTime)]
    pub finished: Timestamp,
}

/// How it ended on the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutcome {
    Done,
    Failed,
    /// It reached the node after its time.
    Expired,
    /// The agent is older than the command.
    NotUnderstood,
}

/// Where a command stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CommandStatus {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = String)]
    pub id: CommandId,
    #[serde(flatten)]
    pub state: CommandState,
}

/// Waiting, out of time, or answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CommandState {
    Pending {
        command: Envelope,
    },
    /// It waited for longer than it was allowed to.
    Expired {
        command: Envelope,
    },
    Answered {
        result: CommandResult,
    },
}
