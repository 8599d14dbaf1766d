//! `bunraku compile`: compile nodes, and show the compile queue.

use bunraku_model::{EnvironmentName, NodeName};
use bunraku_wire::Client;
use bunraku_wire::api::{
    CompileOutcome, CompileRequested, CompileSelection, CompileStatus, CompileStatusRequest,
    QueuedCompile,
};
use bunraku_wire::endpoints::{ListCompileQueue, RequestCompiles, ShowCompiles};
use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::compile_view::{note, place};
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
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
    Queue,
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
            None => compile(&client, &selection, arguments.wait, json).await,
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
        eprintln!("the compile queue is empty");
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
            eprintln!("{} queued", output::count(requested.nodes.len(), "node"));
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
        CompileOutcome::Failed { problems } => {
            let lines = problems
                .iter()
                .map(|problem| format!("    {}\n", place(problem)));
            format!(
                "✗ {node}  failed; keeps its previous catalog\n{}",
                lines.collect::<String>()
            )
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
