//! Commands: sent by operators, taken and answered by nodes.

use std::time::Duration;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bunraku_wire::api::{
    Cause, Command, CommandResult, CommandStatus, Problem, SendCommand, SentCommand, StreamMessage,
};
use http::{StatusCode, header};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, Body, PathCommand, PathNode, Services};
use crate::http::caller::Caller;
use crate::http::command_stream;
use crate::http::reply::Refusal;

/// The longest that an answer is held back.
const LONGEST_WAIT: u64 = 60;

/// Send a command to some nodes.
#[utoipa::path(post, path = "/v1/commands", tag = "commands", request_body = SendCommand,
    responses((status = 200, body = Vec<SentCommand>), (status = "default", body = Problem)))]
pub(crate) async fn send(
    State(services): State<Services>,
    caller: Caller,
    Body(mut request): Body<SendCommand>,
) -> Answer<Vec<SentCommand>> {
    name_the_caller(&mut request.command, &caller);
    // Nodes of an ordered run are asked to run by that run alone.
    if matches!(request.command, Command::Run(_)) {
        services.orchestration.refuse_held(&request.nodes).await?;
    }
    let sent = services
        .commands
        .send(&request, caller.name.as_str())
        .await?;
    services.metrics.commands_sent(sent.len());
    Ok(Json(sent))
}

/// A person who asks for a run stands in its report under the name in their
/// certificate, whatever they wrote.
fn name_the_caller(command: &mut Command, caller: &Caller) {
    if let Command::Run(request) = command {
        for cause in &mut request.causes {
            if let Cause::Operator { name, .. } = cause {
                *name = caller.name.to_string();
            }
        }
    }
}

/// How long to hold the answer back.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Wait {
    /// Seconds to wait for the node's answer, at most 60.
    #[serde(default)]
    wait_seconds: u64,
}

/// Where a command stands.
#[utoipa::path(get, path = "/v1/nodes/{node}/commands/{id}", tag = "commands",
    params(("node" = String, Path), ("id" = String, Path), Wait),
    responses((status = 200, body = CommandStatus), (status = "default", body = Problem)))]
pub(crate) async fn status(
    State(services): State<Services>,
    PathNode(node): PathNode,
    PathCommand(id): PathCommand,
    Query(wait): Query<Wait>,
) -> Answer<CommandStatus> {
    let most = Duration::from_secs(wait.wait_seconds.min(LONGEST_WAIT));
    let status = tokio::select! {
        status = services.commands.wait(&node, id, most) => status?,
        () = services.shutdown.cancelled() => services.commands.status(&node, id).await?,
    };
    Ok(Json(status))
}

/// A node's answer to a command.
#[utoipa::path(put, path = "/v1/nodes/{node}/commands/{id}/result", tag = "commands",
    params(("node" = String, Path), ("id" = String, Path)),
    request_body = CommandResult, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn answer(
    State(services): State<Services>,
    PathNode(node): PathNode,
    PathCommand(id): PathCommand,
    Body(result): Body<CommandResult>,
) -> Result<StatusCode, Refusal> {
    services.commands.answer(&node, id, &result).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What the agent says of itself when it connects.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Hello {
    /// The agent's version.
    #[serde(default)]
    version: String,
}

/// A node's command stream: one JSON message per line, for as long as the line lives.
#[utoipa::path(get, path = "/v1/nodes/{node}/stream", tag = "commands", params(("node" = String, Path), Hello),
    responses((status = 200, body = StreamMessage, content_type = "application/x-ndjson"), (status = "default", body = Problem)))]
pub(crate) async fn stream(
    State(services): State<Services>,
    PathNode(node): PathNode,
    Query(hello): Query<Hello>,
) -> Result<Response, Refusal> {
    let body = command_stream::open(&services, &node, &hello.version).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, HttpBody::new(body)).into_response())
}
