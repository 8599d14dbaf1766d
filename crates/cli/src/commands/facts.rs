//! `bunraku facts`: show and compare the facts of nodes.

use bunraku_agent::facts::{self, FactOptions};
use bunraku_model::{FactSet, NodeName};
use bunraku_wire::Client;
use bunraku_wire::api::{Command, FactSetEntry, FactsDifference, FactsReply};
use bunraku_wire::endpoints::{CompareFacts, DifferenceQuery, Endpoint, ListFactSets, ShowFacts};
use clap::Subcommand;
use serde_json::Value;

use crate::connection::failed;
use crate::context::Context;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json_mode;
use crate::node_commands::{report_answers, send_and_wait};
use crate::node_names::{resolve, resolve_one};
use crate::output::{self, Table};

#[derive(Subcommand)]
pub(crate) enum FactsCommand {
    /// Show the newest facts of a node
    #[command(
        after_help = "Examples:\n  bunraku facts show web-1.example.com\n  bunraku facts show web-1.example.com os.family"
    )]
    Show {
        /// Node whose facts to show
        node: NodeName,
        /// Dotted path of one fact, such as os.family
        fact: Option<String>,
    },
    /// Ask nodes to collect and submit their facts now
    #[command(after_help = "Example:\n  bunraku facts refresh web-1.example.com")]
    Refresh {
        /// Nodes to ask
        #[arg(required = true)]
        nodes: Vec<NodeName>,
        /// How long to wait for an answer
        #[arg(long, default_value = "30s")]
        timeout: HumanDuration,
    },
    /// Compare two fact sets of a node
    ///
    /// By default, compares the newest fact set with the previous one. Volatile
    /// facts (uptime, load, …) are compared as of the last change of any other
    /// fact.
    #[command(
        after_help = "Examples:\n  bunraku facts diff web-1.example.com\n  bunraku facts diff web-1.example.com --from 3f2a --to 91bc"
    )]
    Diff {
        /// Node whose facts to compare
        node: NodeName,
        /// Fact set to compare with, by id prefix [default: the previous one]
        #[arg(long, value_name = "ID")]
        from: Option<String>,
        /// Fact set to compare, by id prefix [default: the newest]
        #[arg(long, value_name = "ID")]
        to: Option<String>,
    },
    /// List the stored fact sets of a node, newest first
    #[command(after_help = "Example:\n  bunraku facts history web-1.example.com")]
    History {
        /// Node whose fact sets to list
        node: NodeName,
    },
    /// Show the facts of this machine, without a server
    #[command(after_help = "Examples:\n  bunraku facts local\n  bunraku facts local os.family")]
    Local {
        /// Dotted path of one fact, such as os.family
        fact: Option<String>,
    },
}

pub(crate) fn run(command: FactsCommand, context: &Context) -> Result<Exit, Failure> {
    match command {
        FactsCommand::Local { fact } => local(context, fact.as_deref()),
        FactsCommand::Show { node, fact } => context.with_client(|client| async move {
            let node = resolve_one(&client, node).await?;
            let reply = client.call(ShowFacts.at(&node)).await;
            let reply: FactsReply = reply.map_err(|error| failed(&error))?;
            print(&reply.facts, fact.as_deref())
        }),
        FactsCommand::Diff { node, from, to } => {
            let json = context.global.json;
            context.with_client(|client| async move {
                let node = resolve_one(&client, node).await?;
                diff(&client, &node, from.as_deref(), to.as_deref(), json).await
            })
        }
        FactsCommand::History { node } => {
            let json = context.global.json;
            context.with_client(|client| async move {
                let node = resolve_one(&client, node).await?;
                history(&client, &node, json).await
            })
        }
        FactsCommand::Refresh { nodes, timeout } => {
            let json = context.global.json;
            context.with_client(|client| async move {
                let nodes = resolve(&client, nodes).await?;
                let statuses =
                    send_and_wait(&client, nodes, Command::RefreshFacts, timeout).await?;
                report_answers(&statuses, json)
            })
        }
    }
}

async fn diff(
    client: &Client,
    node: &NodeName,
    from: Option<&str>,
    to: Option<&str>,
    json: bool,
) -> Result<Exit, Failure> {
    for id in [from, to].into_iter().flatten() {
        if !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(
                Failure::usage(format!("`{id}` is not the id of a fact set"))
                    .hint(format!("list them with `bunraku facts history {node}`")),
            );
        }
    }
    let query = DifferenceQuery {
        from: from.map(str::to_owned),
        to: to.map(str::to_owned),
    };
    let reply = client.call(CompareFacts.with_query(node, &query)).await;
    let reply: FactsDifference = reply.map_err(|error| failed(&error))?;
    if json {
        output::json(&reply)?;
    } else {
        output::write(&difference_lines(&reply))?;
    }
    Ok(Exit::Done)
}

/// Formats a change: the old value with `-`, the new one with `+`, below the fact's path.
fn difference_lines(difference: &FactsDifference) -> String {
    let short = |entry: &FactSetEntry| entry.fact_set.0.short();
    let mut text = format!(
        "{}  {} -> {}  {}\n",
        difference.node,
        short(&difference.from),
        short(&difference.to),
        match difference.changes.len() {
            1 => "1 fact changed".to_owned(),
            count => format!("{count} facts changed"),
        }
    );
    for change in &difference.changes {
        text.push_str(&format!("  {}\n", change.path));
        for (sign, value) in [('-', &change.before), ('+', &change.after)] {
            if let Some(value) = value {
                text.push_str(&format!("    {sign} {value}\n"));
            }
        }
    }
    text
}

async fn history(client: &Client, node: &NodeName, json: bool) -> Result<Exit, Failure> {
    let entries = client.call(ListFactSets.at(node)).await;
    let entries: Vec<FactSetEntry> = entries.map_err(|error| failed(&error))?;
    if json {
        output::json(&entries)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["FACT SET", "FROM", "UNTIL"]);
    for entry in &entries {
        table.row(vec![
            entry.fact_set.0.short(),
            output::time(entry.changed),
            entry
                .replaced
                .map_or_else(|| "now".to_owned(), output::time),
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

/// The configured options for collecting this machine's facts.
pub(crate) fn options(context: &Context) -> FactOptions {
    let section = &context.loaded.file.agent;
    FactOptions {
        external_dirs: section.external_facts.clone(),
        external_timeout: section.external_facts_timeout.0,
        ..FactOptions::default()
    }
}

fn local(context: &Context, fact: Option<&str>) -> Result<Exit, Failure> {
    let collected = facts::collect(&options(context));
    for warning in &collected.warnings {
        note!("warning: {warning}");
    }
    print(&collected.facts, fact)
}

/// Prints facts as JSON. A single text fact is printed without quotes, for scripts.
fn print(facts: &FactSet, fact: Option<&str>) -> Result<Exit, Failure> {
    let Some(path) = fact else {
        output::json(facts)?;
        return Ok(Exit::Done);
    };
    match facts.get(path) {
        None => {
            let failure = Failure::new(format!("there is no fact `{path}`"));
            return Err(failure.hint("omit the path to see all facts"));
        }
        Some(Value::String(text)) if !json_mode::is_on() => output::write(&format!("{text}\n"))?,
        Some(value) => output::json(value)?,
    }
    Ok(Exit::Done)
}
