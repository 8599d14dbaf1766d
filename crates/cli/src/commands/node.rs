//! `bunraku node`: list, enable, disable, assign and remove nodes.

use bunraku_model::{Activity, Administration, Connection, EnvironmentName, NodeName};
use bunraku_wire::Client;
use bunraku_wire::api::{
    AssignRequest, Command, CompileStatus, CompileStatusRequest, DisableRequest, NodeSummary,
};
use bunraku_wire::endpoints::{
    AssignEnvironment, DisableNode, EnableNode, Endpoint, RemoveNode, ShowCompiles, ShowNode,
};
use clap::Subcommand;

use super::{node_queue, node_run};
use crate::compile_view::{outcome_words, problem_lines};
use crate::connection::failed;
use crate::context::Context;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_commands::{report_answers, send_and_wait};
use crate::node_names::{resolve, resolve_one};
use crate::node_view;
use crate::output::{self, time};

#[derive(Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes with their status and their last run
    List(super::node_list::ListArguments),
    /// Show a node
    #[command(after_help = "Example:\n  bunraku node show web-1.example.com")]
    Show {
        /// Node to show
        node: NodeName,
    },
    /// Disable nodes
    #[command(
        after_help = "Example:\n  bunraku node disable web-1.example.com --reason 'disk is being replaced'"
    )]
    Disable {
        /// Nodes to disable
        #[arg(required = true)]
        nodes: Vec<NodeName>,
        /// Reason, shown with the node
        #[arg(long)]
        reason: String,
    },
    /// Enable nodes
    #[command(after_help = "Example:\n  bunraku node enable web-1.example.com")]
    Enable {
        /// Nodes to enable
        #[arg(required = true)]
        nodes: Vec<NodeName>,
    },
    /// Assign nodes to an environment
    #[command(
        after_help = "Example:\n  bunraku node assign web-1.example.com web-2.example.com staging"
    )]
    Assign {
        /// Nodes, followed by the environment
        #[arg(required = true, num_args = 2.., value_names = ["NODE", "ENVIRONMENT"])]
        names: Vec<String>,
    },
    /// Remove nodes: revoke their certificates and delete their facts
    #[command(after_help = "Example:\n  bunraku node remove web-1.example.com")]
    Remove {
        /// Nodes to remove
        #[arg(required = true)]
        nodes: Vec<NodeName>,
    },
    /// Install an agent over SSH: copy Bunraku, join with a one-time token, start it
    Add(Box<super::node_add::AddArguments>),
    /// Show the run queue of a node
    #[command(after_help = "Example:\n  bunraku node queue web-1.example.com")]
    Queue {
        /// Node whose queue to show
        node: NodeName,
    },
    /// Run nodes now
    Run(node_run::RunArguments),
    /// Check whether nodes answer
    #[command(after_help = "Example:\n  bunraku node ping web-1.example.com web-2.example.com")]
    Ping {
        /// Nodes to ask
        #[arg(required = true)]
        nodes: Vec<NodeName>,
        /// How long to wait for an answer
        #[arg(long, default_value = "10s")]
        timeout: HumanDuration,
    },
}

pub(crate) fn run(command: NodeCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    let servers = match context.global.servers.as_slice() {
        [] => &context.loaded.file.client.servers,
        named => named,
    };
    context.with_client(|client| async move {
        match command {
            NodeCommand::Add(arguments) => {
                super::node_add::run(&client, &arguments, servers, json).await
            }
            NodeCommand::List(arguments) => super::node_list::run(&client, &arguments, json).await,
            NodeCommand::Show { node } => {
                let node = resolve_one(&client, node).await?;
                show(&client, &node, json).await
            }
            NodeCommand::Disable { nodes, reason } => {
                let request = DisableRequest { reason };
                for node in &resolve(&client, nodes).await? {
                    client
                        .call_with(DisableNode.at(node), &request)
                        .await
                        .map_err(|error| failed(&error))?;
                    note!("Disabled {node}.");
                }
                Ok(Exit::Done)
            }
            NodeCommand::Enable { nodes } => {
                for node in &resolve(&client, nodes).await? {
                    client
                        .call(EnableNode.at(node))
                        .await
                        .map_err(|error| failed(&error))?;
                    note!("Enabled {node}.");
                }
                Ok(Exit::Done)
            }
            NodeCommand::Assign { names } => assign(&client, names).await,
            NodeCommand::Remove { nodes } => {
                for node in &nodes {
                    client
                        .call(RemoveNode.at(node))
                        .await
                        .map_err(|error| failed(&error))?;
                    note!("Removed {node} and revoked its certificates.");
                }
                Ok(Exit::Done)
            }
            NodeCommand::Queue { node } => {
                let node = resolve_one(&client, node).await?;
                node_queue::show(&client, &node, json).await
            }
            NodeCommand::Run(arguments) => node_run::run(&client, arguments, json).await,
            NodeCommand::Ping { nodes, timeout } => {
                let nodes = resolve(&client, nodes).await?;
                let statuses = send_and_wait(&client, nodes, Command::Ping, timeout).await?;
                report_answers(&statuses, json)
            }
        }
    })
}

async fn assign(client: &Client, mut names: Vec<String>) -> Result<Exit, Failure> {
    let environment = EnvironmentName::new(names.pop().unwrap_or_default())?;
    let nodes = names.into_iter().map(NodeName::new);
    let nodes: Vec<NodeName> = nodes.collect::<Result<_, _>>()?;
    let nodes = resolve(client, nodes).await?;
    let request = AssignRequest {
        environment: environment.clone(),
    };
    for node in &nodes {
        let at = AssignEnvironment.at(node);
        let assigned = client.call_with(at, &request).await;
        assigned.map_err(|error| failed(&error))?;
        note!("Assigned {node} to environment {environment}.");
    }
    Ok(Exit::Done)
}

async fn show(client: &Client, node: &NodeName, json: bool) -> Result<Exit, Failure> {
    let summary: NodeSummary = client
        .call(ShowNode.at(node))
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&summary)?;
        return Ok(Exit::Done);
    }
    let connection = match &summary.status.connection {
        Connection::Never { since } => {
            format!("never connected; certificate signed {}", time(*since))
        }
        Connection::Connected { since, server } => {
            format!("connected since {} to server {server}", time(*since))
        }
        Connection::Lost { since, reason } => format!("lost since {}: {reason}", time(*since)),
    };
    let administration = match &summary.status.administration {
        Administration::Enabled { since } => format!("enabled since {}", time(*since)),
        Administration::Disabled { since, reason, by } => {
            format!("disabled since {} by {by}: {reason}", time(*since))
        }
    };
    let activity = match &summary.status.activity {
        Activity::Idle { since } => format!("idle since {}", time(*since)),
        Activity::Running { since, what } => format!("running since {}: {what}", time(*since)),
    };
    let facts = match (&summary.fact_set, &summary.facts_received) {
        (Some(id), Some(received)) => format!("{}, received {}", id.0.short(), time(*received)),
        _ => "none".to_owned(),
    };
    let lines = [
        ("node", summary.name.to_string()),
        ("environment", summary.environment.to_string()),
        (
            "status",
            format!("{} since {}", summary.word.as_str(), time(summary.since)),
        ),
        ("connection", connection),
        ("administration", administration),
        ("activity", activity),
        ("last run", last_run(&summary)),
        ("facts", facts),
        (
            "agent",
            summary
                .agent_version
                .unwrap_or_else(|| "unknown".to_owned()),
        ),
        ("commands", format!("{} waiting", summary.pending_commands)),
    ];
    let compile = failed_compile(client, node).await?;
    let text: String = lines
        .iter()
        .chain(&compile)
        .map(|(name, value)| format!("{name:<15} {value}\n"))
        .collect();
    output::write(&text)?;
    Ok(Exit::Done)
}

/// Describes the newest run: its end, and what failed or had drifted.
fn last_run(node: &NodeSummary) -> String {
    let Some(last) = &node.last_run else {
        return "none".to_owned();
    };
    let mut text = format!("{} at {}", node_view::ending(last), time(last.at));
    if let Some(release) = last.release {
        text.push_str(&format!(", release {release}"));
    }
    for detail in node_view::details(last) {
        text.push_str(&format!("\n{:<15} {detail}", ""));
    }
    text.push_str(&format!("\n{:<15} bunraku report show {}", "", last.run));
    text
}

/// Returns the line of a node whose newest compile failed.
async fn failed_compile(
    client: &Client,
    node: &NodeName,
) -> Result<Option<(&'static str, String)>, Failure> {
    let request = CompileStatusRequest {
        nodes: vec![node.clone()],
        wait_seconds: 0,
    };
    let statuses = client.call_with(ShowCompiles, &request).await;
    let statuses: Vec<CompileStatus> = statuses.map_err(|error| failed(&error))?;
    let outcome = statuses.into_iter().next().and_then(|status| status.last);
    let outcome = outcome.map(|last| last.outcome);
    let problems = outcome.as_ref().map(problem_lines).unwrap_or_default();
    Ok(outcome.filter(|_| !problems.is_empty()).map(|outcome| {
        let mut text = format!("{}: ", outcome_words(&outcome));
        text.push_str(&problems.join(&format!("\n{:<15} ", "")));
        ("compile", text)
    }))
}
