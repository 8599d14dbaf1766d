//! Sends a command to nodes, waits for the replies and prints them.

use std::time::Duration;

use bunraku_model::{Connection, NodeName};
use bunraku_wire::Client;
use bunraku_wire::api::{
    Command, CommandOutcome, CommandState, CommandStatus, NodeSummary, SendCommand, SentCommand,
};
use bunraku_wire::endpoints::{Endpoint, ListNodes, SendCommands, ShowCommand, WaitQuery};
use futures::StreamExt;

use crate::connection::failed;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// The time after which a wait for nodes is explained.
const UNEXPLAINED: Duration = Duration::from_secs(2);

/// The most nodes that are named.
const MOST_NAMED: usize = 5;

/// Waits for nodes. If that takes a while, says which of them are not connected.
pub(crate) async fn explain_wait<T>(
    client: &Client,
    nodes: &[NodeName],
    work: impl Future<Output = T>,
) -> T {
    tokio::pin!(work);
    if let Ok(done) = tokio::time::timeout(UNEXPLAINED, &mut work).await {
        return done;
    }
    // Without the list there is no explanation, and the wait goes on.
    let known = client.call(ListNodes).await.unwrap_or_default();
    let absent: Vec<String> = (known.iter())
        .filter(|node| nodes.contains(&node.name))
        .filter_map(absence)
        .collect();
    for line in absent.iter().take(MOST_NAMED) {
        note!("{line}");
    }
    if absent.len() > MOST_NAMED {
        note!("{} more are not connected", absent.len() - MOST_NAMED);
    }
    work.await
}

/// Says that a node is not connected, and why.
fn absence(node: &NodeSummary) -> Option<String> {
    let why = match &node.status.connection {
        Connection::Connected { .. } => return None,
        Connection::Never { .. } => "has never connected".to_owned(),
        Connection::Lost { reason, .. } => format!("is lost: {reason}"),
    };
    Some(format!("{} {why}. The command waits for it.", node.name))
}

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
        nodes: nodes.clone(),
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
    let answers = futures::stream::iter(sent)
        .map(|sent| async move {
            let at = ShowCommand.with_query((&sent.node, &sent.id), &wait);
            client.call(at).await
        })
        .buffered(32)
        .collect();
    let statuses: Vec<_> = explain_wait(client, &nodes, answers).await;
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
