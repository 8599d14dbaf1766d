//! Commands: sent by operators, answered by nodes.

use axum::body::Body as HttpBody;
use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_wire::api::{Cause, Command, RunMode, RunSubject};
use bunraku_wire::endpoints::{AnswerCommand, OpenCommandStream, SendCommands, ShowCommand};

use super::longest_wait;
use crate::http::caller::Caller;
use crate::http::command_stream::{self, ConnectedAgent};
use crate::http::endpoint::{Call, HandlerResult, LineBody, Routes};
use crate::http::ping_body::PingBody;
use crate::http::reply::ErrorReply;
use bunraku_control::presence::{AgentDescription, NodeRunMethod};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(SendCommands, send)
        .add(ShowCommand, status)
        .add(AnswerCommand, answer)
        .add(OpenCommandStream, stream)
}

async fn send(mut call: Call<SendCommands>) -> HandlerResult<SendCommands> {
    check_access(&call).await?;
    let caller = call.caller()?.clone();
    name_the_caller(&mut call.body.command, &caller);
    // Only an ordered run may start runs on its nodes, and only it names planned work.
    if let Command::Run(request) = &call.body.command {
        if request.subject.is_planned() {
            let message = "only an ordered run names planned work".to_owned();
            return Err(ErrorReply::invalid(message));
        }
        call.services
            .orchestration
            .refuse_held(&call.body.nodes)
            .await?;
    }
    let sent = call.services.commands.send(&call.body, call.by()?).await?;
    call.services.metrics.commands_sent(sent.len());
    Ok(sent)
}

/// Refuses an operator who may not send this to all of the nodes.
async fn check_access(call: &Call<SendCommands>) -> Result<(), ErrorReply> {
    let verb = match &call.body.command {
        Command::Ping | Command::RefreshFacts => AccessVerb::NoopRun,
        Command::Run(request) if request.mode == Some(RunMode::Noop) => AccessVerb::NoopRun,
        Command::Run(_) | Command::CancelRun { .. } | Command::Administer { .. } => AccessVerb::Run,
    };
    call.require_nodes(verb, &call.body.nodes).await?;
    if let Command::Run(request) = &call.body.command
        && let RunSubject::Configured {
            environment: Some(environment),
            ..
        } = &request.subject
    {
        // The nodes get the code of this environment.
        let target = AccessTarget::Environment(environment.clone());
        call.require(verb, target).await?;
    }
    Ok(())
}

/// Sets the requester of a run to the name in the caller's certificate, whatever the request
/// says. The report shows this name.
fn name_the_caller(command: &mut Command, caller: &Caller) {
    if let Command::Run(request) = command {
        for cause in &mut request.causes {
            if let Cause::Operator { name, .. } = cause {
                *name = caller.name.to_string();
            }
        }
    }
}

async fn status(call: Call<ShowCommand>) -> HandlerResult<ShowCommand> {
    let (node, id) = &call.path;
    let most = longest_wait(call.query.wait_seconds);
    let status = tokio::select! {
        status = call.services.commands.wait(node, *id, most) => status?,
        () = call.services.shutdown.cancelled() => call.services.commands.status(node, *id).await?,
    };
    Ok(status)
}

async fn answer(call: Call<AnswerCommand>) -> HandlerResult<AnswerCommand> {
    let (node, id) = &call.path;
    call.services.commands.answer(node, *id, &call.body).await?;
    Ok(())
}

async fn stream(call: Call<OpenCommandStream>) -> HandlerResult<OpenCommandStream> {
    let query = &call.query;
    let run_method = (!query.run_method.is_empty()).then(|| NodeRunMethod {
        name: query.run_method.clone(),
        applies_released: query.applies_released,
    });
    let agent = ConnectedAgent {
        description: AgentDescription {
            version: query.version.clone(),
            run_method,
        },
        pings: call.query.answers_pings.then(|| PingBody::new(call.body)),
    };
    let body = command_stream::open(&call.services, &call.path, agent).await?;
    Ok(LineBody::from_body(HttpBody::new(body)))
}
