//! Commands: sent by operators, streamed to nodes, answered by nodes.

use bunraku_model::{CommandId, NodeName};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{Json, JsonLines, List, NoContent, PingAnswers};
use crate::api::{CommandResult, CommandStatus, SendCommand, SentCommand, StreamMessage};

/// How long the server may hold a reply back.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Seconds to wait for the awaited state, at most 60. Default: do not wait.
    #[serde(default)]
    pub wait_seconds: u64,
}

/// The agent that connects.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AgentQuery {
    /// The version of the agent.
    #[serde(default)]
    pub version: String,
    /// The agent answers pings: the request has a body, with one line for each ping.
    #[serde(default)]
    pub answers_pings: bool,
    /// The configured run method: `engine`, `puppet` or `command`. Empty if the agent is too old
    /// to send it.
    #[serde(default)]
    pub run_method: String,
    /// `true` if the configured run method applies released catalogs.
    #[serde(default)]
    pub applies_released: bool,
}

endpoints! {
    tag "commands";

    /// Send a command to nodes.
    SendCommands: Post "/v1/commands" {
        access: Operator,
        needs: NoopRun on Each,
        body: Json<SendCommand>,
        reply: List<SentCommand>,
        details: ["nodes", "command.do", "command.mode"],
    }

    /// Show the state of a command; can wait for the answer of the node.
    ShowCommand: Get "/v1/nodes/{node}/commands/{id}" {
        access: Operator,
        needs: View on Node,
        path: (NodeName, CommandId),
        query: WaitQuery,
        reply: Json<CommandStatus>,
    }

    /// Answer a command.
    AnswerCommand: Put "/v1/nodes/{node}/commands/{id}/result" {
        access: OwnNode,
        path: (NodeName, CommandId),
        body: Json<CommandResult>,
        reply: NoContent,
        audited: Routine,
    }

    /// Open the command stream of a node.
    ///
    /// The node counts as connected while the stream is open and its agent answers pings. The body
    /// of the request stays open; each line is the number of a ping.
    OpenCommandStream: Get "/v1/nodes/{node}/stream" {
        access: OwnNode,
        path: NodeName,
        query: AgentQuery,
        body: PingAnswers,
        reply: JsonLines<StreamMessage>,
        old_data: Refused,
    }
}
