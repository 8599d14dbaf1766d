//! Reads the source of a plan: files of three kinds, modules, or a Puppet server.

use std::path::{Path, PathBuf};

use bunraku_model::NodeName;
use bunraku_plan::{
    Filter, Inventory, NodePattern, NodeRead, PlanOptions, ReadError, RunPlan, Site,
    environment_graph, site_file, site_manifest, site_queries,
};
use bunraku_wire::Client;
use bunraku_wire::api::NodeSummary;
use bunraku_wire::api::outputs::NodeReads;
use bunraku_wire::endpoints::{ListNodes, ListOutputReads};
use futures::FutureExt;

use crate::connection::failed;
use crate::failure::Failure;
use crate::plan_view;
use crate::puppet_server::PuppetServerArguments;
use crate::site_modules::{Environment, is_manifests};
use crate::site_queries::{Answers, FactsFile, NodeSource};

/// The maximum size of a file. A larger one is not a site.
const LARGEST_FILE: u64 = 64 << 20;

#[derive(clap::Args, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct SiteArguments {
    /// Site to plan: a Puppet manifest (.pp), a directory with manifests, an environment graph (.json)
    /// or a site file (.yaml); several manifests are read as one. `-` reads a graph from standard input
    #[arg(
        long = "site",
        short = 's',
        value_name = "FILE",
        required_unless_present = "puppet_server",
        conflicts_with = "puppet_server"
    )]
    files: Vec<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    puppet: PuppetServerArguments,
    /// Directories with Puppet modules [default: `modulepath` in the environment.conf, or `modules`
    /// next to the manifests]
    #[arg(long, value_name = "DIR", value_delimiter = ':')]
    modulepath: Vec<PathBuf>,
    /// Environment of manifests and of `--puppet-server`
    #[arg(long, value_name = "NAME", default_value = "production")]
    environment: String,
    /// Plan only these applications, such as `Lamp[app1]`
    #[arg(long, value_name = "APPLICATION")]
    instance: Vec<String>,
    /// Plan only these nodes; `*` matches any characters
    #[arg(long, value_name = "NODE")]
    node: Vec<String>,
    /// Plan only the nodes that this query finds, such as `nodes { facts.os.family = "Debian" }`
    #[arg(long, value_name = "QUERY")]
    #[serde(default)]
    query: Option<String>,
    /// If only nodes form a cycle, run these nodes more than once
    #[arg(long)]
    passes: bool,
    /// File with the known nodes, for name patterns: the output of `bunraku node list --json`
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// Answer queries from this file instead of the server: the output of
    /// `bunraku query --json 'nodes[certname, facts]'`
    #[arg(long, value_name = "FILE")]
    #[serde(default)]
    facts: Option<PathBuf>,
}

impl SiteArguments {
    /// Returns the arguments as JSON, so that the site can be planned again from any directory.
    pub(crate) fn remember(&self) -> Result<serde_json::Value, Failure> {
        let absolute = |path: &PathBuf| {
            if path.as_os_str() == "-" {
                Ok(path.clone())
            } else {
                std::path::absolute(path)
            }
        };
        let mut kept = self.clone();
        kept.puppet = self.puppet.absolute()?;
        kept.files = self.files.iter().map(absolute).collect::<Result<_, _>>()?;
        kept.modulepath = self
            .modulepath
            .iter()
            .map(absolute)
            .collect::<Result<_, _>>()?;
        kept.inventory = self.inventory.as_ref().map(absolute).transpose()?;
        kept.facts = self.facts.as_ref().map(absolute).transpose()?;
        Ok(serde_json::to_value(kept)?)
    }

    /// Replaces the files to plan from.
    pub(crate) fn replace_files(&mut self, files: Vec<PathBuf>) {
        self.files = files;
        self.puppet = PuppetServerArguments::default();
    }

    /// Restores the arguments from the result of [`SiteArguments::remember`].
    pub(crate) fn remembered(value: Option<&serde_json::Value>) -> Result<Self, Failure> {
        let unknown =
            || Failure::new("the source of the plan is unknown").hint("pass `--site FILE`");
        let value = value.ok_or_else(unknown)?;
        serde_json::from_value(value.clone()).map_err(|_| unknown())
    }
}

/// Plans with the server's information about nodes, and warns about nodes that cannot run now.
pub(crate) async fn planned(
    arguments: &SiteArguments,
    client: &Client,
) -> Result<RunPlan, Failure> {
    let nodes: Vec<NodeSummary> = client
        .call(ListNodes)
        .await
        .map_err(|error| failed(&error))?;
    let knower = match facts_file(arguments)? {
        Some(facts) => NodeSource::File(Box::new(facts)),
        None => NodeSource::Server(client, &nodes),
    };
    let reads = output_reads(client).await?;
    let mut plan = plan(arguments, &knower, reads).await?;
    plan.warnings.extend(plan_view::unfit_nodes(&plan, &nodes));
    Ok(plan)
}

/// Plans without a server and without information about nodes.
pub(crate) fn planned_offline(arguments: &SiteArguments) -> Result<RunPlan, Failure> {
    let knower = facts_file(arguments)?.map_or(NodeSource::Nobody, |facts| {
        NodeSource::File(Box::new(facts))
    });
    plan(arguments, &knower, Vec::new())
        .now_or_never()
        .expect("reading files does not suspend")
}

fn facts_file(arguments: &SiteArguments) -> Result<Option<FactsFile>, Failure> {
    let file = arguments.facts.as_ref();
    file.map(|path| FactsFile::read(path, &text(path)?))
        .transpose()
}

/// Returns the outputs of other nodes that released catalogs read, from the server.
async fn output_reads(client: &Client) -> Result<Vec<NodeReads>, Failure> {
    let reads = client.call(ListOutputReads).await;
    reads.map_err(|error| failed(&error))
}

/// Reads the site and plans it, including the waits that outputs imply.
async fn plan(
    arguments: &SiteArguments,
    knower: &NodeSource<'_>,
    reads: Vec<NodeReads>,
) -> Result<RunPlan, Failure> {
    let mut inventory = inventory(arguments, knower)?;
    inventory.answers = answer_queries(arguments, knower).await?;
    let mut site = read_with_facts(arguments, &inventory, knower).await?;
    for NodeReads { node, reads } in reads {
        site.reads.extend(reads.into_iter().map(|read| NodeRead {
            reader: node.to_string(),
            source: read.node,
            name: read.name,
        }));
    }
    let only = match &arguments.query {
        None => None,
        Some(query) => {
            let mut answer = knower.answers([query.clone()]).await?;
            let found = answer.remove(query).ok_or_else(|| {
                Failure::usage("`--query` needs facts from a server, and `--offline` excludes it")
                    .hint(
                        "plan without `--offline`, or pass the output of `bunraku query --json \
                     'nodes[certname, facts]'` with `--facts`",
                    )
            })?;
            Some(found.into_iter().collect())
        }
    };
    let options = PlanOptions {
        filter: Filter {
            instances: arguments.instance.clone(),
            nodes: arguments.node.iter().map(NodePattern::new).collect(),
            only,
        },
        passes: arguments.passes,
    };
    bunraku_plan::plan_site(&site, &options).map_err(|error| Failure::new(error.to_string()))
}

/// Answers the queries of site files.
async fn answer_queries(
    arguments: &SiteArguments,
    knower: &NodeSource<'_>,
) -> Result<Answers, Failure> {
    let mut queries = std::collections::BTreeSet::new();
    for path in &arguments.files {
        if matches!(kind(path).as_deref(), Some("yaml" | "yml")) {
            let name = path.display().to_string();
            queries.extend(site_queries(&name, &text(path)?).map_err(refused)?);
        }
    }
    knower.answers(queries).await
}

fn refused(error: ReadError) -> Failure {
    let hint = error.hint().map(str::to_owned);
    Failure::new(error.to_string()).hint_if(hint)
}

/// Returns the file's extension in lower case.
fn kind(path: &Path) -> Option<String> {
    path.extension()
        .and_then(|kind| kind.to_str())
        .map(str::to_lowercase)
}

fn inventory(arguments: &SiteArguments, knower: &NodeSource<'_>) -> Result<Inventory, Failure> {
    let Some(path) = &arguments.inventory else {
        return Ok(knower
            .names()
            .map_or_else(Inventory::default, Inventory::of));
    };
    #[derive(serde::Deserialize)]
    struct Entry {
        name: NodeName,
    }
    let entries: Vec<Entry> = serde_json::from_str(&text(path)?).map_err(|error| {
        Failure::new(format!("{} is not a list of nodes", path.display())).caused_by(&error)
    })?;
    Ok(Inventory::of(
        entries.into_iter().map(|one| one.name).collect(),
    ))
}

/// The number of times that a manifest is read: each time with the facts and rows that it asked for
/// the last time.
const MOST_READS: usize = 10;

/// Reads the site. A manifest is read again with the facts of the nodes that it names, and with the
/// answers to its queries.
async fn read_with_facts(
    arguments: &SiteArguments,
    inventory: &Inventory,
    knower: &NodeSource<'_>,
) -> Result<Site, Failure> {
    if !reads_manifests(arguments) {
        return read(arguments, inventory);
    }
    let environment = Environment::of(&arguments.files, &arguments.modulepath);
    let mut environment = environment.named(&arguments.environment);
    let mut asked = std::collections::BTreeSet::new();
    let mut site = read_manifests(arguments, &environment);
    for _ in 1..MOST_READS {
        let rows = knower.rows(environment.take_unanswered()).await?;
        let components = site.iter().flat_map(|site| &site.applications);
        let components = components.flat_map(|one| &one.components);
        let nodes = components.flat_map(|one| &one.nodes);
        let nodes = nodes.filter(|node| asked.insert(node.name.clone()));
        let nodes: Vec<String> = nodes.map(|node| node.name.clone()).collect();
        let facts = knower.facts(nodes.iter().map(String::as_str)).await?;
        if facts.is_empty() && rows.is_empty() {
            break;
        }
        environment.learn(facts, rows);
        site = read_manifests(arguments, &environment);
    }
    site
}

fn read_manifests(arguments: &SiteArguments, environment: &Environment) -> Result<Site, Failure> {
    let files = environment
        .manifests()?
        .iter()
        .map(|path| Ok((path.display().to_string(), text(path)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    site_manifest(&files, environment, &arguments.environment).map_err(refused)
}

fn reads_manifests(arguments: &SiteArguments) -> bool {
    let mut files = arguments.files.iter();
    arguments.puppet.puppet_server.is_none() && files.all(|path| is_manifests(path))
}

/// Reads the site without a server, for its values and not for a plan.
pub(crate) fn site_offline(arguments: &SiteArguments) -> Result<Site, Failure> {
    let knower = facts_file(arguments)?.map_or(NodeSource::Nobody, |facts| {
        NodeSource::File(Box::new(facts))
    });
    site_of(arguments, &knower)
        .now_or_never()
        .expect("reading files does not suspend")
}

/// Reads the site with the server's information.
pub(crate) async fn site(arguments: &SiteArguments, client: &Client) -> Result<Site, Failure> {
    let knower = match facts_file(arguments)? {
        Some(facts) => NodeSource::File(Box::new(facts)),
        None => NodeSource::Server(client, &[]),
    };
    site_of(arguments, &knower).await
}

async fn site_of(arguments: &SiteArguments, knower: &NodeSource<'_>) -> Result<Site, Failure> {
    let mut inventory = inventory(arguments, knower)?;
    inventory.answers = answer_queries(arguments, knower).await?;
    read_with_facts(arguments, &inventory, knower).await
}

/// Reads a site that is not a manifest.
fn read(arguments: &SiteArguments, inventory: &Inventory) -> Result<Site, Failure> {
    if let Some(url) = &arguments.puppet.puppet_server {
        let graph = arguments.puppet.graph(url, &arguments.environment)?;
        return environment_graph(url, &graph).map_err(refused);
    }
    let [path] = arguments.files.as_slice() else {
        return Err(Failure::usage("only manifests (.pp) can be combined"));
    };
    let name = path.display().to_string();
    match kind(path).as_deref() {
        Some("json") => environment_graph(&name, &text(path)?).map_err(refused),
        _ if path.as_os_str() == "-" => environment_graph("<stdin>", &text(path)?).map_err(refused),
        Some("yaml" | "yml") => site_file(&name, &text(path)?, inventory).map_err(refused),
        _ => Err(Failure::usage(format!(
            "{name} is neither .pp, .json nor .yaml"
        ))),
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    use std::io::Read;
    let cannot = |error: &std::io::Error| {
        Failure::new(format!("cannot read {}", path.display())).caused_by(error)
    };
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin()
            .take(LARGEST_FILE)
            .read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(LARGEST_FILE).read_to_string(&mut text))
    };
    read.map_err(|error| cannot(&error))?;
    Ok(text)
}
