//! `bunraku facts`: what nodes say of themselves.

use bunraku_agent::facts::{self, FactOptions};
use bunraku_model::{FactSet, NodeName};
use bunraku_wire::api::{Command, FactsReply};
use clap::Subcommand;
use serde_json::Value;

use super::Context;
use super::node::{report_answers, send_and_wait};
use crate::connection::failed;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

#[derive(Subcommand)]
pub(crate) enum FactsCommand {
    /// The newest facts of a node, all of them or one
    #[command(
        after_help = "Examples:\n  bunraku facts show web-1.example.com\n  bunraku facts show web-1.example.com os.family"
    )]
    Show {
        node: NodeName,
        /// Dotted path of one fact, for example os.family
        fact: Option<String>,
    },
    /// Ask nodes to collect and submit their facts now
    Refresh {
        #[arg(required = true)]
        nodes: Vec<NodeName>,
        /// How long to wait for an answer
        #[arg(long, default_value = "30s")]
        timeout: HumanDuration,
    },
    /// The facts of this machine, without a server
    Local {
        /// Dotted path of one fact, for example os.family
        fact: Option<String>,
    },
}

pub(crate) fn run(command: FactsCommand, context: &Context) -> Result<Exit, Failure> {
    match command {
        FactsCommand::Local { fact } => local(context, fact.as_deref()),
        FactsCommand::Show { node, fact } => context.with_client(|client| async move {
            let path = format!("/v1/nodes/{node}/facts");
            let reply: FactsReply = client.get(&path).await.map_err(|error| failed(&error))?;
            print(&reply.facts, fact.as_deref())
        }),
        FactsCommand::Refresh { nodes, timeout } => {
            let json = context.global.json;
            context.with_client(|client| async move {
                let statuses =
                    send_and_wait(&client, nodes, Command::RefreshFacts, timeout).await?;
                report_answers(&statuses, json)
            })
        }
    }
}

/// How this machine's facts are collected, by configuration.
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
        eprintln!("warning: {warning}");
    }
    print(&collected.facts, fact)
}

/// Facts are JSON; a single text fact is printed bare, for scripts.
fn print(facts: &FactSet, fact: Option<&str>) -> Result<Exit, Failure> {
    let Some(path) = fact else {
        output::json(facts)?;
        return Ok(Exit::Done);
    };
    match facts.get(path) {
        None => {
            let failure = Failure::new(format!("there is no fact `{path}`"));
            return Err(failure.hint("see all of them by leaving the path out"));
        }
        Some(Value::String(text)) => output::write(&format!("{text}\n"))?,
        Some(value) => output::json(value)?,
    }
    Ok(Exit::Done)
}
