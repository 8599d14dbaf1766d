//! `bunraku compile`: compile nodes, and show the compile queue.

use bunraku_model::{EnvironmentName, NodeName};
use bunraku_wire::Client;
use bunraku_wire::api::{
    CompileOutcome, CompileRequested, CompileSelection, CompileStatus, CompileStatusRequest,
    NodeSummary, QueuedCompile,
};
use bunraku_wire::endpoints::{ListCompileQueue, ListNodes, RequestCompiles, ShowCompiles};
use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::compile_view::{note, outcome_words, place, problem_lines};
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_names::resolve;
use crate::output::{self, Table, ago};

/// The number of nodes in one request.
const AT_ONCE: usize = 500;

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  bunraku compile web-1.example.com --wait
  bunraku compile --environment production
  bunraku compile queue
  bunraku compile list --failed

With `--wait`: exit code 0 if all nodes are compiled, 3 if some failed."
)]
pub(crate) struct CompileArguments {
    #[command(subcommand)]
    command: Option<CompileCommand>,
    /// Nodes to compile
    nodes: Vec<NodeName>,
    /// Compile all nodes of this environment
    #[arg(long, conflicts_with = "nodes")]
    environment: Option<EnvironmentName>,
    /// Compile all nodes
    #[arg(long, conflicts_with_all = ["nodes", "environment"])]
    all: bool,
    /// Wait until they are compiled
    #[arg(long)]
    wait: bool,
}

#[derive(Subcommand)]
enum CompileCommand {
    /// Show the compile queue in order
    #[command(after_help = "Example:\n  bunraku compile queue")]
    Queue,
    /// List the newest compile of each node
    #[command(after_help = "Example:\n  bunraku compile list --failed")]
    List {
        /// Only failed and quarantined compiles
        #[arg(long)]
        failed: bool,
    },
}

pub(crate) fn run(arguments: CompileArguments, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    let selection = match (&arguments.environment, arguments.all) {
        (Some(environment), _) => CompileSelection::Environment(environment.clone()),
        (None, true) => CompileSelection::All,
        (None, false) => CompileSelection::Nodes(arguments.nodes.clone()),
    };
    if arguments.command.is_none() && selection == CompileSelection::Nodes(Vec::new()) {
        return Err(
            Failure::usage("no nodes given").hint("pass nodes, `--environment NAME` or `--all`")
        );
    }
    context.with_client(|client| async move {
        match arguments.command {
            Some(CompileCommand::Queue) => queue(&client, json).await,
            Some(CompileCommand::List { failed }) => list(&client, failed, json).await,
            None => {
                let selection = match selection {
                    CompileSelection::Nodes(nodes) => {
                        CompileSelection::Nodes(resolve(&client, nodes).await?)
                    }
                    other => other,
                };
                compile(&client, &selection, arguments.wait, json).await
            }
        }
    })
}

async fn queue(client: &Client, json: bool) -> Result<Exit, Failure> {
    let waiting: Vec<QueuedCompile> = client
        .call(ListCompileQueue)
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&waiting)?;
        return Ok(Exit::Done);
    }
    if waiting.is_empty() {
        note!("the compile queue is empty");
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["NODE", "ENVIRONMENT", "REASONS", "QUEUED", "COMPILING"]);
    for one in waiting {
        let reasons: Vec<_> = one.reasons.iter().map(|reason| reason.as_str()).collect();
        let started = one
            .started
            .map(|started| format!("for {}", ago(started, now)));
        table.row(vec![
            one.node.to_string(),
            one.environment.to_string(),
            reasons.join(", "),
            format!("{} ago", ago(one.since, now)),
            started.unwrap_or_default(),
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

async fn list(client: &Client, only_failed: bool, json: bool) -> Result<Exit, Failure> {
    let nodes: Vec<NodeSummary> = client
        .call(ListNodes)
        .await
        .map_err(|error| failed(&error))?;
    let names: Vec<NodeName> = nodes.into_iter().map(|node| node.name).collect();
    let mut statuses: Vec<CompileStatus> = Vec::new();
    for nodes in names.chunks(AT_ONCE) {
        let request = CompileStatusRequest {
            nodes: nodes.to_vec(),
            wait_seconds: 0,
        };
        let some = client.call_with(ShowCompiles, &request).await;
        statuses.extend(some.map_err(|error| failed(&error))?);
    }
    if only_failed {
        statuses.retain(|status| {
            let outcome = status.last.as_ref().map(|last| &last.outcome);
            matches!(outcome, Some(CompileOutcome::Failed { .. }))
        });
    }
    if json {
        output::json(&statuses)?;
        return Ok(Exit::Done);
    }
    if statuses.is_empty() {
        note!("no compiles");
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["NODE", "ENVIRONMENT", "OUTCOME", "WHEN", "PROBLEM"]);
    for status in &statuses {
        let mut row = vec![status.node.to_string()];
        match &status.last {
            None => row.extend(["", "never compiled", "", ""].map(str::to_owned)),
            Some(last) => row.extend([
                last.environment.to_string(),
                outcome_words(&last.outcome).to_owned(),
                format!("{} ago", ago(last.at, now)),
                (problem_lines(&last.outcome).into_iter().next()).unwrap_or_default(),
            ]),
        }
        table.row(row);
    }
    table.print()?;
    Ok(Exit::Done)
}

async fn compile(
    client: &Client,
    selection: &CompileSelection,
    wait: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let requested: CompileRequested = client
        .call_with(RequestCompiles, selection)
        .await
        .map_err(|error| failed(&error))?;
    if !wait {
        if json {
            output::json(&requested)?;
        } else {
            note!("{} queued", output::count(requested.nodes.len(), "node"));
        }
        return Ok(Exit::Done);
    }
    let mut statuses = Vec::new();
    for nodes in requested.nodes.chunks(AT_ONCE) {
        statuses.extend(wait_for(client, nodes).await?);
    }
    if json {
        output::json(&statuses)?;
    } else {
        let lines: String = statuses.iter().map(line).collect();
        output::write(&lines)?;
    }
    Ok(if statuses.iter().all(is_good) {
        Exit::Done
    } else {
        Exit::SomeNodesFailed
    })
}

async fn wait_for(client: &Client, nodes: &[NodeName]) -> Result<Vec<CompileStatus>, Failure> {
    crate::waiting::for_what("waiting until all nodes are compiled");
    let request = CompileStatusRequest {
        nodes: nodes.to_vec(),
        wait_seconds: 20,
    };
    loop {
        let statuses: Vec<CompileStatus> = client
            .call_with(ShowCompiles, &request)
            .await
            .map_err(|error| failed(&error))?;
        if !statuses.iter().any(|status| status.waiting) {
            return Ok(statuses);
        }
    }
}

fn is_good(status: &CompileStatus) -> bool {
    let outcome = status.last.as_ref().map(|last| &last.outcome);
    matches!(outcome, Some(CompileOutcome::Compiled { .. }))
}

fn line(status: &CompileStatus) -> String {
    let node = &status.node;
    let Some(last) = &status.last else {
        return format!("✗ {node}  never compiled\n");
    };
    match &last.outcome {
        CompileOutcome::Compiled {
            catalog,
            resources,
            changed,
        } => {
            let word = if *changed { "changed" } else { "unchanged" };
            let id = catalog.0.short();
            let notes: String = last.notes.iter().map(note).collect();
            format!(
                "✓ {node}  {word}  {id}  {}\n{notes}",
                output::count(*resources, "resource")
            )
        }
        outcome @ CompileOutcome::Failed {
            problems,
            quarantined,
        } => {
            let lines: String = if *quarantined {
                let lines = problem_lines(outcome).into_iter();
                lines.map(|line| format!("    {line}\n")).collect()
            } else {
                let lines = problems.iter().map(place);
                lines.map(|line| format!("    {line}\n")).collect()
            };
            let word = outcome_words(outcome);
            format!("✗ {node}  {word}; keeps its previous catalog\n{lines}")
        }
        CompileOutcome::NoCode => {
            format!(
                "✗ {node}  environment {} has no code yet\n",
                last.environment
            )
        }
        CompileOutcome::NoFacts => format!("✗ {node}  has not sent facts yet\n"),
    }
}
