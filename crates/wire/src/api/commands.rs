//! Commands for nodes. Each is delivered until the node answers.

use bunraku_model::{Administration, CommandId, NodeName, NodeRunId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{RunRequest, Target};

/// A command for a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Command {
    /// Answer at once.
    Ping,
    /// Collect facts and submit them now.
    RefreshFacts,
    /// Add a run to the node's queue. The answer confirms that the run is stored in the queue. The
    /// report with its id contains the outcome.
    Run(Box<RunRequest>),
    /// Remove a run from the queue, or end it if it has started.
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

/// A command addressed to one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Envelope {
    #[schema(value_type = String)]
    pub id: CommandId,
    pub command: Command,
    pub sent_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub sent: Timestamp,
    /// The time after which the node ignores the command.
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
}

/// One line of a node's command stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum StreamMessage {
    /// The stream is open. Pending commands follow.
    Welcome {
        server: String,
        /// Servers counted the node as lost until now, because its agent did not answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<LostNotice>,
    },
    Command(Envelope),
    /// The node's target. Sent when the stream opens and at every change.
    Target {
        target: Option<Target>,
    },
    /// The ordered run that holds the node. Sent when the stream opens if there is one, at every
    /// change, and repeatedly while it lasts.
    Hold {
        hold: Option<NodeHold>,
    },
    /// The servers of the cluster changed: `HOST:PORT` of each.
    Servers {
        servers: Vec<String>,
    },
    /// A sign of life is due: the agent sends the number back in the body of its request.
    Ping {
        number: u64,
        /// An agent that does not answer for this long counts as lost.
        silence_seconds: u64,
    },
    /// The trusted CAs or the revocation list changed: ask for them.
    Authority,
    /// Another agent with the same certificate connected.
    Superseded,
    /// The node's certificate was revoked.
    Revoked,
    /// The server shuts down. Connect to another one.
    Goodbye,
}

/// The time and the reason from which servers counted a node as lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LostNotice {
    #[schema(value_type = String)]
    pub since: Timestamp,
    pub reason: String,
}

/// An ordered run holds the node, so the node starts no other run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeHold {
    #[schema(value_type = String)]
    pub run: RunId,
    /// The hold's lifetime by the node's monotonic clock, unless it is repeated.
    pub seconds: u64,
}

/// A request to send one command to several nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SendCommand {
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
    pub command: Command,
    /// How long the command waits for a disconnected node.
    pub ttl_seconds: u64,
}

/// The command's id for one node. Replies list them in the order of the request.
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

/// The outcome on the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutcome {
    Done,
    Failed,
    /// It reached the node after it had expired.
    Expired,
    /// The agent is too old to know the command.
    NotUnderstood,
}

/// The status of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CommandStatus {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = String)]
    pub id: CommandId,
    #[serde(flatten)]
    pub state: CommandState,
}

/// The state of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CommandState {
    Pending {
        command: Envelope,
    },
    /// The node did not receive it in time.
    Expired {
        command: Envelope,
    },
    Answered {
        result: CommandResult,
    },
}
