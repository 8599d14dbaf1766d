//! `bunraku node list`: nodes with their status and their last run.

use bunraku_model::{EnvironmentName, StatusWord};
use bunraku_wire::Client;
use bunraku_wire::api::NodeSummary;
use bunraku_wire::endpoints::{Endpoint, ListNodes, ShowEnvironment};
use clap::{Args, ValueEnum};

use crate::connection::failed;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_names;
use crate::node_view::table;
use crate::output;

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku node list --failed
  bunraku node list --status lost,disabled
  bunraku node list --query 'nodes { facts.os.family = \"Debian\" }'
  bunraku node list --json | jq -r '.[].name'

Several options select the nodes that match all of them.")]
pub(crate) struct ListArguments {
    /// Only nodes whose last run failed
    #[arg(long)]
    failed: bool,
    /// Only nodes whose last run found drift: changes that someone else had made
    #[arg(long)]
    drifted: bool,
    /// Only nodes with one of these statuses
    #[arg(long, value_delimiter = ',', value_name = "STATUS,…")]
    status: Vec<Status>,
    /// Only nodes of this environment
    #[arg(long, value_name = "ENVIRONMENT")]
    environment: Option<EnvironmentName>,
    /// Only nodes that a query finds
    #[arg(long, value_name = "QUERY")]
    query: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Status {
    New,
    Idle,
    Running,
    Disabled,
    Lost,
}

impl Status {
    fn word(self) -> StatusWord {
        match self {
            Self::New => StatusWord::New,
            Self::Idle => StatusWord::Idle,
            Self::Running => StatusWord::Running,
            Self::Disabled => StatusWord::Disabled,
            Self::Lost => StatusWord::Lost,
        }
    }
}

impl ListArguments {
    fn selects_all(&self) -> bool {
        !self.failed
            && !self.drifted
            && self.status.is_empty()
            && self.environment.is_none()
            && self.query.is_none()
    }

    /// Checks everything except the query.
    fn matches(&self, node: &NodeSummary) -> bool {
        (!self.failed || node.has_failed())
            && (!self.drifted || node.has_drifted())
            && (self.status.is_empty() || self.status.iter().any(|one| one.word() == node.word))
            && (self.environment.as_ref()).is_none_or(|wanted| *wanted == node.environment)
    }
}

pub(super) async fn run(
    client: &Client,
    arguments: &ListArguments,
    json: bool,
) -> Result<Exit, Failure> {
    let found = match &arguments.query {
        Some(query) => Some(node_names::matching(client, query).await?),
        None => None,
    };
    let nodes = client.call(ListNodes).await;
    let all: Vec<NodeSummary> = nodes.map_err(|error| failed(&error))?;
    let total = all.len();
    let nodes: Vec<NodeSummary> = all
        .into_iter()
        .filter(|node| arguments.matches(node))
        .filter(|node| {
            found
                .as_ref()
                .is_none_or(|found| found.contains(&node.name))
        })
        .collect();
    let empty = match total {
        0 => "no nodes yet\n\nhint: create a token for the first one with `bunraku token create`"
            .to_owned(),
        total => format!("none of {} matches", output::count(total, "node")),
    };
    if let (true, Some(environment)) = (nodes.is_empty(), &arguments.environment) {
        // A misspelled environment is an error, unlike one without such nodes.
        let known = client.call(ShowEnvironment.at(environment)).await;
        known.map_err(|error| failed(&error))?;
    }
    if !output::has_rows(&nodes, json, &empty)? {
        return Ok(Exit::Done);
    }
    let shown = nodes.len();
    table(nodes).print()?;
    if !arguments.selects_all() {
        note!("\n{shown} of {}", output::count(total, "node"));
    }
    Ok(Exit::Done)
}
