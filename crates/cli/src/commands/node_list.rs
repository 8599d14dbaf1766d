//! `bunraku node list`: nodes with their status and their last run.

use bunraku_model::{EnvironmentName, StatusWord};
use bunraku_wire::Client;
use bunraku_wire::api::NodeSummary;
use bunraku_wire::endpoints::{Endpoint, ListNodes, NodesQuery, ShowEnvironment};
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
    /// The largest number of nodes to list [default: all]
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,
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

    /// Returns everything except the query.
    fn conditions(&self) -> NodesQuery {
        let words: Vec<&str> = self.status.iter().map(|it| it.word().as_str()).collect();
        NodesQuery {
            failed: self.failed,
            drifted: self.drifted,
            status: (!words.is_empty()).then(|| words.join(",")),
            environment: self.environment.clone(),
        }
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
    // A query is answered first, so that a limit counts only nodes that it finds.
    let limit = arguments.limit.filter(|_| found.is_none());
    let listed = client.first(ListNodes.with_query((), &arguments.conditions()), limit);
    let listed = listed.await.map_err(|error| failed(&error))?;
    let mut nodes = listed.items;
    nodes.retain(|node| {
        let found = found.as_ref();
        found.is_none_or(|found| found.contains(&node.name))
    });
    nodes.truncate(arguments.limit.unwrap_or(usize::MAX));
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let is_cut = arguments.limit == Some(nodes.len());
    let total = match listed.total {
        _ if arguments.selects_all() && !is_cut => nodes.len(),
        // The index may lag slightly.
        Some(total) => total.max(nodes.len()),
        None => {
            let all: Vec<NodeSummary> = client
                .call(ListNodes)
                .await
                .map_err(|error| failed(&error))?;
            all.len()
        }
    };
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
    if !arguments.selects_all() || is_cut {
        note!("\n{shown} of {}", output::count(total, "node"));
    }
    Ok(Exit::Done)
}
