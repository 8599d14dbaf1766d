//! Sends a command to nodes, waits for the replies and prints them.

use bunraku_model::NodeName;
use bunraku_wire::Client;
use bunraku_wire::api::{
    Command, CommandOutcome, CommandState, CommandStatus, SendCommand, SentCommand,
};
use bunraku_wire::endpoints::{Endpoint, SendCommands, ShowCommand, WaitQuery};
use futures::StreamExt;

use crate::connection::failed;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// Sends a command to nodes and waits for every answer, up to the timeout.
pub(crate) async fn send_and_wait(
    client: &Client,
    nodes: Vec<NodeName>,
    command: Command,
    timeout: HumanDuration,
) -> Result<Vec<CommandStatus>, Failure> {
    crate::waiting::for_what("waiting for answers");
    let ttl_seconds = timeout.0.as_secs().max(1);
    let request = SendCommand {
        nodes,
        command,
        ttl_seconds,
    };
    let sent: Vec<SentCommand> = client
        .call_with(SendCommands, &request)
        .await
        .map_err(|error| failed(&error))?;
    let wait = WaitQuery {
        wait_seconds: ttl_seconds.min(60),
    };
    let statuses: Vec<_> = futures::stream::iter(sent)
        .map(|sent| async move {
            let at = ShowCommand.with_query((&sent.node, &sent.id), &wait);
            client.call(at).await
        })
        .buffered(32)
        .collect()
        .await;
    statuses
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|error| failed(&error))
}

/// Prints answers. A missing answer is never a success.
pub(crate) fn report_answers(statuses: &[CommandStatus], json: bool) -> Result<Exit, Failure> {
    let done = |status: &CommandStatus| matches!(&status.state, CommandState::Answered { result } if result.outcome == CommandOutcome::Done);
    if json {
        output::json(&statuses)?;
    } else {
        for status in statuses {
            let mark = if done(status) { "✓" } else { "✗" };
            let text = match &status.state {
                CommandState::Answered { result } => &result.message,
                CommandState::Pending { .. } => "no answer yet",
                CommandState::Expired { .. } => "no answer in time",
            };
            output::write(&format!("{mark} {}  {text}\n", status.node))?;
        }
    }
    Ok(if statuses.iter().all(done) {
        Exit::Done
    } else {
        Exit::SomeNodesFailed
    })
}
