//! `bunraku node run`: requests runs of nodes, and follows their reports.

use std::time::Duration;

use bunraku_model::{EnvironmentName, NodeName, NodeRunId};
use bunraku_wire::Client;
use bunraku_wire::api::{
    Cause, Command, CommandOutcome, CommandState, CommandStatus, NumberedEvent, ReportEvent,
    ReportState, ReportSummary, RunEnding, RunMode, RunRequest, RunSubject, SendCommand,
    SentCommand, ServerStatus,
};
use bunraku_wire::client::Lines;
use bunraku_wire::endpoints::{
    Endpoint, EventsQuery, FollowReport, SendCommands, ShowCommand, ShowReport, ShowServer,
    WaitQuery,
};
use clap::Args;
use futures::StreamExt;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::connection::failed;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_commands::explain_wait;
use crate::node_names;
use crate::output;
use crate::report_view::ending_line;
use crate::waiting;

/// The number of nodes whose reports are followed at the same time.
const AT_ONCE: usize = 64;
/// The pause after a stream broke.
const RETRY: Duration = Duration::from_millis(500);
/// The interval between checks whether the store has room for reports.
const LOOK_FOR_SPACE: Duration = Duration::from_secs(5);

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku node run web-1.example.com --noop --wait
  bunraku node run web-1 web-2 --reason 'after the disk was replaced'
  bunraku node run --query 'nodes { facts.os.family = \"Debian\" }' --noop --wait

Exit code 3: a node refused, failed, or was lost.")]
pub(crate) struct RunArguments {
    /// Nodes to run
    #[arg(required_unless_present_any = ["query", "all"])]
    nodes: Vec<NodeName>,
    /// Run the nodes that a query finds
    #[arg(long, value_name = "QUERY", conflicts_with = "nodes")]
    query: Option<String>,
    /// Run all nodes
    #[arg(long, conflicts_with_all = ["nodes", "query"])]
    all: bool,
    /// Only show what would change
    #[arg(long)]
    noop: bool,
    /// Enforce, even outside the node's windows
    #[arg(long, conflicts_with = "noop")]
    enforce: bool,
    /// Report every resource, not only those that changed or failed
    #[arg(long)]
    report_unchanged: bool,
    /// Apply the released catalog, even if the node's run method does something else
    #[arg(long)]
    released: bool,
    /// Use the node's own run method, which is the default
    #[arg(long, hide = true, conflicts_with = "released")]
    configured: bool,
    /// Puppet environment for this run, instead of the node's setting
    #[arg(long, value_name = "ENVIRONMENT", conflicts_with = "released")]
    in_environment: Option<EnvironmentName>,
    /// Apply only resources with one of these tags: type, title, class or a custom tag
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    tags: Vec<String>,
    /// Wait for the runs to finish
    #[arg(long)]
    wait: bool,
    /// Reason, shown in the report
    #[arg(long)]
    reason: Option<String>,
    /// How long a node may take to start
    #[arg(long, default_value = "10m", value_name = "SPAN")]
    start_within: HumanDuration,
    /// Time limit for a run
    #[arg(long, value_name = "SPAN")]
    timeout: Option<HumanDuration>,
}

/// The outcome of one node.
#[derive(Serialize)]
struct NodeOutcome {
    node: NodeName,
    run: NodeRunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    ending: Option<RunEnding>,
    message: String,
    #[serde(skip)]
    good: bool,
}

pub(crate) async fn run(
    client: &Client,
    arguments: RunArguments,
    json: bool,
) -> Result<Exit, Failure> {
    let nodes = selected(client, &arguments).await?;
    waiting::for_what(&format!(
        "waiting until {} accepted the run",
        output::count(nodes.len(), "node")
    ));
    let asking = futures::stream::iter(&nodes)
        .map(|node| ask(client, node, &arguments))
        .buffered(AT_ONCE)
        .collect();
    let asked: Vec<_> = explain_wait(client, &nodes, asking).await;
    let mut outcomes = Vec::new();
    for asked in asked {
        outcomes.push(asked?);
    }
    if arguments.wait {
        let runs = output::count(outcomes.len(), "run");
        waiting::for_what(&format!("waiting for {runs} to end"));
        let following = outcomes
            .into_iter()
            .map(|outcome| follow(client, outcome, json));
        let followed: Vec<_> = futures::stream::iter(following)
            .buffered(AT_ONCE)
            .collect()
            .await;
        outcomes = followed.into_iter().collect::<Result<_, _>>()?;
    }
    if json {
        output::json(&outcomes)?;
    } else if !arguments.wait {
        for outcome in &outcomes {
            let mark = if outcome.good { "✓" } else { "✗" };
            output::write(&format!(
                "{mark} {}  {}  {}\n",
                outcome.node, outcome.run, outcome.message
            ))?;
        }
        if let Some(first) = outcomes.iter().find(|outcome| outcome.good) {
            note!(
                "\nhint: see what it did with `bunraku report show {}`",
                first.run
            );
        }
    }
    Ok(if outcomes.iter().all(|outcome| outcome.good) {
        Exit::Done
    } else {
        Exit::SomeNodesFailed
    })
}

/// Returns the nodes to run, of which there must be one.
async fn selected(client: &Client, arguments: &RunArguments) -> Result<Vec<NodeName>, Failure> {
    if let Some(query) = &arguments.query {
        let found = node_names::matching(client, query).await?;
        if found.is_empty() {
            let failure = Failure::new(format!("no node matches `{query}`"));
            return Err(failure.hint("`bunraku node list --query` shows what a query finds"));
        }
        return Ok(found.into_iter().collect());
    }
    if arguments.all {
        let nodes = node_names::all(client).await?;
        if nodes.is_empty() {
            let failure = Failure::new("there are no nodes");
            return Err(
                failure.hint("create a token for the first one with `bunraku token create`")
            );
        }
        return Ok(nodes);
    }
    node_names::resolve(client, arguments.nodes.clone()).await
}

/// Puts the run into the node's queue, and waits until the node has it.
async fn ask(
    client: &Client,
    node: &NodeName,
    arguments: &RunArguments,
) -> Result<NodeOutcome, Failure> {
    let run = NodeRunId(Uuid::now_v7());
    let within = arguments.start_within.0;
    let request = RunRequest {
        id: run,
        causes: vec![Cause::Operator {
            name: "operator".to_owned(),
            reason: arguments.reason.clone(),
        }],
        mode: match (arguments.noop, arguments.enforce) {
            (true, _) => Some(RunMode::Noop),
            (false, true) => Some(RunMode::Enforce),
            (false, false) => None,
        },
        subject: if arguments.released {
            RunSubject::Released
        } else {
            RunSubject::Configured {
                environment: arguments.in_environment.clone(),
                planned: None,
            }
        },
        tags: arguments.tags.clone(),
        start_before: Timestamp::now().checked_add(within).ok(),
        timeout_seconds: arguments.timeout.map(|timeout| timeout.0.as_secs().max(1)),
        coalesce: false,
        report_unchanged: arguments.report_unchanged,
    };
    let send = SendCommand {
        nodes: vec![node.clone()],
        command: Command::Run(Box::new(request)),
        ttl_seconds: within.as_secs().max(1),
    };
    let sent: Vec<SentCommand> = client
        .call_with(SendCommands, &send)
        .await
        .map_err(|error| failed(&error))?;
    let status = answer(client, &sent[0], within).await?;
    let (good, message) = match status.state {
        CommandState::Answered { result } => {
            (result.outcome == CommandOutcome::Done, result.message)
        }
        CommandState::Pending { .. } => (false, "no answer yet".to_owned()),
        CommandState::Expired { .. } => (false, "no answer in time".to_owned()),
    };
    Ok(NodeOutcome {
        node: node.clone(),
        run,
        ending: None,
        message,
        good,
    })
}

async fn answer(
    client: &Client,
    sent: &SentCommand,
    within: Duration,
) -> Result<CommandStatus, Failure> {
    let started = std::time::Instant::now();
    loop {
        let left = within
            .saturating_sub(started.elapsed())
            .as_secs()
            .clamp(1, 50);
        let wait = WaitQuery { wait_seconds: left };
        let at = ShowCommand.with_query((&sent.node, &sent.id), &wait);
        let status: CommandStatus = client.call(at).await.map_err(|error| failed(&error))?;
        if !matches!(status.state, CommandState::Pending { .. }) || started.elapsed() >= within {
            return Ok(status);
        }
    }
}

/// Follows a run until it ends, or until its node is lost.
async fn follow(client: &Client, asked: NodeOutcome, json: bool) -> Result<NodeOutcome, Failure> {
    if !asked.good {
        if !json {
            output::write(&format!("✗ {}  {}\n", asked.node, asked.message))?;
        }
        return Ok(asked);
    }
    let (node, run) = (&asked.node, asked.run);
    let mut next = 0;
    loop {
        let at = FollowReport.with_query((node, &run), &EventsQuery { from: next });
        let broke = match client.follow(at).await {
            Ok(lines) => tokio::select! {
                read = read(lines, &asked, &mut next) => read,
                () = store_is_full(client) => return Err(no_room_for_report(&asked)),
            },
            Err(error) => Err(error),
        };
        match broke {
            Ok(Some(outcome)) => return print_outcome(client, outcome, json).await,
            // The server closed the stream: it is shutting down, or the node is lost.
            Ok(None) => match lost(client, &asked).await {
                Ok(Some(outcome)) => return print_outcome(client, outcome, json).await,
                Ok(None) => tokio::time::sleep(RETRY).await,
                Err(error) if error.is_passing() => tokio::time::sleep(RETRY).await,
                Err(error) => return Err(failed(&error)),
            },
            Err(error) if error.is_passing() => tokio::time::sleep(RETRY).await,
            Err(error) => return Err(failed(&error)),
        }
    }
}

/// Returns once the store is full: then no report arrives.
async fn store_is_full(client: &Client) {
    loop {
        tokio::time::sleep(LOOK_FOR_SPACE).await;
        let status: Result<ServerStatus, _> = client.call(ShowServer).await;
        let space = status.ok().and_then(|status| status.space);
        if space.is_some_and(|space| space.is_full()) {
            return;
        }
    }
}

fn no_room_for_report(asked: &NodeOutcome) -> Failure {
    Failure::new(format!(
        "the datastore is full: cannot wait for run {} of {}",
        asked.run, asked.node
    ))
    .hint("the run continues, and its report arrives once there is room; see docs/operating.md")
}

async fn print_outcome(
    client: &Client,
    outcome: NodeOutcome,
    json: bool,
) -> Result<NodeOutcome, Failure> {
    if !json {
        let at = ShowReport.at((&outcome.node, &outcome.run));
        let summary: ReportSummary = client.call(at).await.map_err(|error| failed(&error))?;
        output::write(&ending_line(&summary))?;
    }
    Ok(outcome)
}

async fn read(
    mut lines: Lines<NumberedEvent>,
    asked: &NodeOutcome,
    next: &mut u64,
) -> Result<Option<NodeOutcome>, bunraku_wire::ClientError> {
    while let Some(event) = lines.next().await {
        let event = event?;
        *next = event.number + event.event.width();
        if let ReportEvent::Finished(finished) = event.event {
            return Ok(Some(NodeOutcome {
                node: asked.node.clone(),
                run: asked.run,
                ending: Some(finished.ending),
                message: finished.message.unwrap_or_default(),
                good: finished.ending == RunEnding::Succeeded,
            }));
        }
    }
    Ok(None)
}

/// A node that disappears during its run counts as failed.
async fn lost(
    client: &Client,
    asked: &NodeOutcome,
) -> Result<Option<NodeOutcome>, bunraku_wire::ClientError> {
    let at = ShowReport.at((&asked.node, &asked.run));
    let summary: ReportSummary = match client.call(at).await {
        Ok(summary) => summary,
        Err(error) if error.status() == Some(404) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok((summary.state == ReportState::Lost).then(|| NodeOutcome {
        node: asked.node.clone(),
        run: asked.run,
        ending: None,
        message: "the node was lost during the run".to_owned(),
        good: false,
    }))
}
