//! `bunraku catalog`: list, show and compare the catalogs of nodes.

use bunraku_model::{Catalog, CatalogId, EnvironmentName, NodeName};
use bunraku_wire::Client;
use bunraku_wire::api::{
    CatalogDiffReply, CatalogState, CatalogSummary, CompileOutcome, CompileStatus,
    CompileStatusRequest, FleetDiff, FleetDiffRequest, PuppetComparison, PuppetComparisonRequest,
};
use bunraku_wire::endpoints::{
    CatalogDiffQuery, CatalogsQuery, CompareCatalogs, CompareWithPuppet, Endpoint, ListCatalogs,
    ProposeCatalogs, ShowCatalog, ShowCompiles,
};
use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::connection::failed;
use crate::context::Context;
use crate::diff_view;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table};

#[derive(Subcommand)]
pub(crate) enum CatalogCommand {
    /// List the catalogs of nodes and their state: released, held, outdated
    #[command(
        after_help = "Examples:\n  bunraku catalog list --environment production\n  bunraku catalog list --node web-1.example.com"
    )]
    List {
        /// Only catalogs of this environment
        #[arg(long)]
        environment: Option<EnvironmentName>,
        /// Only the catalogs of this node
        #[arg(long)]
        node: Option<NodeName>,
    },
    /// Show the resources of a catalog; with --json everything
    #[command(after_help = "Examples:
  bunraku catalog show web-1.example.com             the newest compiled catalog
  bunraku catalog show web-1.example.com --released  the released catalog
  bunraku catalog show 3f2a9c01 --json")]
    Show {
        /// Node, or catalog id (or a prefix of it)
        catalog: String,
        /// Show the node's released catalog instead of the newest
        #[arg(long)]
        released: bool,
    },
    /// Compare two catalogs
    #[command(after_help = "Examples:
  bunraku catalog diff web-1.example.com      released and newest catalog
  bunraku catalog diff 3f2a9c01 77d0e1b2      any two catalogs
  bunraku catalog diff --commit 5f8e2d1       what a commit would change, on which nodes
  bunraku catalog diff web-1.example.com --against 91ab3c4 --commit 5f8e2d1

With --detailed-exitcodes, exit code 2 if they differ.")]
    Diff(DiffArguments),
    /// Compare a node's catalog with the one that plain Puppet compiles
    #[command(
        after_help = "The server compiles the node twice from the same commit, facts and trusted data: as
always, and with `puppet catalog compile`. Nothing is stored.

Exit codes: 0 if they are equal, 2 if they differ, 1 on errors.

Example:
  bunraku catalog compare --puppet web-1.example.com"
    )]
    Compare {
        /// Compare with plain Puppet
        #[arg(long, required = true)]
        puppet: bool,
        /// Node whose catalog is compiled twice
        node: NodeName,
    },
}

#[derive(Args)]
pub(crate) struct DiffArguments {
    /// Node, or two catalog ids; with --commit, nodes [default: all]
    #[arg(value_name = "NODE|CATALOG")]
    what: Vec<String>,
    /// Commit of the environment's repository to compile; does not have to be deployed
    #[arg(long)]
    commit: Option<String>,
    /// Compare with this commit instead of the newest catalogs
    #[arg(long, requires = "commit", value_name = "COMMIT")]
    against: Option<String>,
    /// Environment of the code and the nodes
    #[arg(long, requires = "commit", default_value = "production")]
    environment: EnvironmentName,
    /// Exit with 2 if there are differences
    #[arg(long)]
    detailed_exitcodes: bool,
}

pub(crate) fn run(command: CatalogCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            CatalogCommand::List { environment, node } => {
                list(&client, environment.as_ref(), node.as_ref(), json).await
            }
            CatalogCommand::Show { catalog, released } => {
                show(&client, &catalog, released, json).await
            }
            CatalogCommand::Diff(arguments) => diff(&client, arguments, json).await,
            CatalogCommand::Compare { node, .. } => compare(&client, node, json).await,
        }
    })
}

async fn summaries(
    client: &Client,
    environment: Option<&EnvironmentName>,
    node: Option<&NodeName>,
) -> Result<Vec<CatalogSummary>, Failure> {
    let query = CatalogsQuery {
        environment: environment.cloned(),
        node: node.cloned(),
    };
    let found = client.call(ListCatalogs.with_query((), &query)).await;
    found.map_err(|error| failed(&error))
}

async fn list(
    client: &Client,
    environment: Option<&EnvironmentName>,
    node: Option<&NodeName>,
    json: bool,
) -> Result<Exit, Failure> {
    let all = summaries(client, environment, node).await?;
    let empty =
        "no catalogs yet\n\nhint: `bunraku environment add -h` shows how to add an environment";
    if !output::has_rows(&all, json, empty)? {
        return Ok(Exit::Done);
    }
    let heads = [
        "NODE",
        "ENVIRONMENT",
        "CATALOG",
        "STATE",
        "CODE",
        "RESOURCES",
        "COMPILED",
    ];
    let mut table = Table::new(&heads);
    let now = Timestamp::now();
    for one in &all {
        let code = one.code_id.as_ref().map_or("-", |code| code.short());
        let age = |at: Timestamp| format!("{} ago", output::ago(at, now));
        table.row(vec![
            one.node.to_string(),
            one.environment.to_string(),
            one.catalog.0.short(),
            state(one.state).to_owned(),
            code.to_owned(),
            one.resources
                .map_or_else(String::new, |count| count.to_string()),
            one.compiled.map_or_else(String::new, age),
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

fn state(state: CatalogState) -> &'static str {
    match state {
        CatalogState::Released => "released",
        CatalogState::Outdated => "outdated",
        CatalogState::Held => "held",
    }
}

async fn show(client: &Client, named: &str, released: bool, json: bool) -> Result<Exit, Failure> {
    let id = if released {
        pair(client, named).await?.0
    } else {
        find(client, named).await?
    };
    let whole = client.call(ShowCatalog.at(&id)).await;
    let whole = whole.map_err(|error| failed(&error))?;
    if json {
        output::json(&whole)?;
        return Ok(Exit::Done);
    }
    let catalog: Catalog = serde_json::from_value(whole)?;
    let mut table = Table::new(&["RESOURCE", "DECLARED"]);
    let applied = catalog.resources.iter().map(|resource| (resource, ""));
    let exported = catalog.exports.iter().map(|export| (export, "exported "));
    for (resource, word) in applied.chain(exported) {
        let place = resource.place().to_string();
        let declared = if resource.file.is_some() {
            place
        } else {
            String::new()
        };
        table.row(vec![format!("{word}{}", resource.reference()), declared]);
    }
    let head = format!(
        "catalog {id}  {}  {}, {}\n\n",
        catalog.name,
        output::count(catalog.resources.len(), "resource"),
        output::count(catalog.contents().len(), "file")
    );
    let notes = if released {
        String::new()
    } else {
        notes(client, &catalog.name, id).await?
    };
    output::write(&format!("{head}{}{notes}", table.render()))?;
    Ok(Exit::Done)
}

/// The compiler's messages, if this is the catalog of the last compile.
async fn notes(client: &Client, node: &str, id: CatalogId) -> Result<String, Failure> {
    let Ok(node) = NodeName::new(node) else {
        return Ok(String::new());
    };
    let request = CompileStatusRequest {
        nodes: vec![node],
        wait_seconds: 0,
    };
    let statuses: Vec<CompileStatus> = client
        .call_with(ShowCompiles, &request)
        .await
        .map_err(|error| failed(&error))?;
    let last = statuses.into_iter().find_map(|status| status.last);
    let notes = match last {
        Some(last) => match last.outcome {
            CompileOutcome::Compiled { catalog, .. } if catalog == id => last.notes,
            _ => Vec::new(),
        },
        None => Vec::new(),
    };
    if notes.is_empty() {
        return Ok(String::new());
    }
    let lines: String = notes.iter().map(crate::compile_view::note).collect();
    Ok(format!("\nlogged by the compiler:\n{lines}"))
}

async fn diff(client: &Client, arguments: DiffArguments, json: bool) -> Result<Exit, Failure> {
    if let Some(commit) = &arguments.commit {
        return proposed(client, commit, &arguments, json).await;
    }
    let (before, after) = match arguments.what.as_slice() {
        [node] => pair(client, node).await?,
        [before, after] => (find(client, before).await?, find(client, after).await?),
        _ => {
            return Err(Failure::usage("name a node, two catalogs, or a `--commit`"));
        }
    };
    let query = CatalogDiffQuery { before };
    let reply: CatalogDiffReply = client
        .call(CompareCatalogs.with_query(&after, &query))
        .await
        .map_err(|error| failed(&error))?;
    match (json, reply.diff.is_empty()) {
        (true, _) => output::json(&reply)?,
        (false, true) => note!("no differences: both are {}", after.0.short()),
        (false, false) => {
            note!("catalog {} -> {}\n", before.0.short(), after.0.short());
            diff_view::print(&diff_view::diff(&reply.diff));
        }
    }
    Ok(if reply.diff.is_empty() || !arguments.detailed_exitcodes {
        Exit::Done
    } else {
        Exit::Changes
    })
}

async fn compare(client: &Client, node: NodeName, json: bool) -> Result<Exit, Failure> {
    let request = PuppetComparisonRequest { node };
    let reply: PuppetComparison = client
        .call_with(CompareWithPuppet, &request)
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&reply)?;
    } else if reply.is_equal() {
        let (node, resources) = (&reply.node, output::count(reply.resources, "resource"));
        output::write(&format!("{node}  equal to plain Puppet  {resources}\n"))?;
    } else {
        note!("{}  - plain Puppet  + Bunraku\n", reply.node);
        diff_view::print(&diff_view::diff(&reply.diff));
        for (what, list) in [("class", &reply.classes), ("tag", &reply.tags)] {
            let gone = list.removed.iter().map(|name| format!("- {what} {name}\n"));
            let came = list.added.iter().map(|name| format!("+ {what} {name}\n"));
            output::write(&gone.chain(came).collect::<String>())?;
        }
    }
    Ok(if reply.is_equal() {
        Exit::Done
    } else {
        Exit::Changes
    })
}

async fn proposed(
    client: &Client,
    commit: &str,
    arguments: &DiffArguments,
    json: bool,
) -> Result<Exit, Failure> {
    let nodes = arguments.what.iter().map(NodeName::new);
    let nodes: Result<Vec<NodeName>, _> = nodes.collect();
    let request = FleetDiffRequest {
        environment: arguments.environment.clone(),
        commit: commit.to_owned(),
        against: arguments.against.clone(),
        nodes: nodes.map_err(|error| Failure::usage(error.to_string()))?,
    };
    let diff: FleetDiff = client
        .call_with(ProposeCatalogs, &request)
        .await
        .map_err(|error| failed(&error))?;
    super::release::print_fleet(&diff, json, arguments.detailed_exitcodes)
}

/// A node's released catalog and its newest compiled one.
async fn pair(client: &Client, node: &str) -> Result<(CatalogId, CatalogId), Failure> {
    let Ok(name) = NodeName::new(node) else {
        return Err(Failure::usage(format!("`{node}` is not a node's name")));
    };
    let all = summaries(client, None, Some(&name)).await?;
    let with = |states: &[CatalogState]| {
        let found = all.iter().find(|one| states.contains(&one.state));
        found.map(|one| one.catalog)
    };
    use CatalogState::{Held, Outdated, Released};
    let before = with(&[Outdated, Released])
        .ok_or_else(|| Failure::new(format!("`{name}` has no released catalog")))?;
    Ok((before, with(&[Held, Released]).unwrap_or(before)))
}

/// Finds a catalog by its id, by the first digits of the id, or as the newest of a node.
async fn find(client: &Client, named: &str) -> Result<CatalogId, Failure> {
    if let Ok(id) = named.parse() {
        return Ok(id);
    }
    let all = summaries(client, None, None).await?;
    let of_node =
        |one: &&CatalogSummary| one.node.as_str() == named && one.state != CatalogState::Outdated;
    if let Some(newest) = all.iter().find(of_node) {
        return Ok(newest.catalog);
    }
    let starts = |id: &CatalogId| named.len() >= 4 && id.to_string().starts_with(named);
    let mut ids: Vec<CatalogId> = all.iter().map(|one| one.catalog).filter(starts).collect();
    ids.sort_unstable();
    ids.dedup();
    match ids.as_slice() {
        [one] => Ok(*one),
        [] => Err(Failure::new(format!(
            "`{named}` is neither a node with a catalog nor a catalog"
        ))
        .hint("list them with `bunraku catalog list`; give the full id of older catalogs")),
        _ => Err(Failure::new(format!(
            "several catalogs begin with `{named}`"
        ))),
    }
}
