//! `bunraku complete`: what may follow on a command line. The completions of shells call it.
//!
//! It never fails and never takes long: a shell waits for it.

use std::time::Duration;

use bunraku_plan::run::RunSummary;
use bunraku_wire::Client;
use bunraku_wire::api::{EnvironmentSummary, ReleaseList, ReportPage};
use bunraku_wire::endpoints::{
    Endpoint, ListEnvironments, ListReleases, ListReports, ListRuns, ReportsQuery,
};
use clap::Args;

use crate::completion::{WantedNames, candidates};
use crate::connection::connect;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_names;
use crate::output;

/// How long a shell waits for names.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct CompleteArguments {
    /// The words after the program's name; the last one is completed
    #[arg(last = true)]
    words: Vec<String>,
}

pub(crate) fn run(
    arguments: &CompleteArguments,
    context: &Context,
    mut program: clap::Command,
) -> Result<Exit, Failure> {
    program.build();
    let mut found = candidates(&program, &arguments.words);
    if let Some(wanted) = found.names.take() {
        found
            .words
            .extend(names(&wanted, context).unwrap_or_default());
    }
    let start = arguments.words.last().map_or("", String::as_str);
    let fitting = found.words.iter().filter(|word| word.starts_with(start));
    if context.global.json {
        output::json(&fitting.collect::<Vec<_>>())?;
    } else {
        output::write(&fitting.map(|word| format!("{word}\n")).collect::<String>())?;
    }
    Ok(Exit::Done)
}

/// Asks a server for names. A shell gets none if that fails or takes long.
fn names(wanted: &WantedNames, context: &Context) -> Result<Vec<String>, Failure> {
    let client = connect(&context.global, &context.loaded)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let asked = tokio::time::timeout(PATIENCE, ask(&client, wanted)).await;
        asked.unwrap_or_else(|_| Ok(Vec::new()))
    })
}

async fn ask(client: &Client, wanted: &WantedNames) -> Result<Vec<String>, Failure> {
    Ok(match wanted {
        WantedNames::Nodes => nodes(client).await?,
        WantedNames::Environments => environments(client).await?,
        WantedNames::NodesAndEnvironments => {
            [nodes(client).await?, environments(client).await?].concat()
        }
        WantedNames::Releases(environment) => {
            let at = ListReleases.at(&environment.parse()?);
            let list: ReleaseList = client.call(at).await?;
            let numbers = list
                .releases
                .iter()
                .map(|release| release.number.to_string());
            numbers.collect()
        }
        WantedNames::Runs => {
            let runs: Vec<RunSummary> = client.call(ListRuns).await?;
            let ids = runs.iter().map(|run| crate::run_view::short(run.record.id));
            ids.collect()
        }
        WantedNames::Reports => {
            let query = ReportsQuery {
                limit: Some(50),
                ..ReportsQuery::default()
            };
            let page: ReportPage = client.call(ListReports.with_query((), &query)).await?;
            page.reports
                .iter()
                .map(|report| report.run.to_string())
                .collect()
        }
    })
}

async fn nodes(client: &Client) -> Result<Vec<String>, Failure> {
    let nodes = node_names::all(client).await?;
    Ok(nodes.iter().map(ToString::to_string).collect())
}

async fn environments(client: &Client) -> Result<Vec<String>, Failure> {
    let environments: Vec<EnvironmentSummary> = client.call(ListEnvironments).await?;
    let names = environments
        .iter()
        .map(|environment| environment.name.to_string());
    Ok(names.collect())
}
