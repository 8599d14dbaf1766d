//! `bunraku report`: list, show and follow the reports of nodes.

use bunraku_model::NodeName;
use bunraku_wire::Client;
use bunraku_wire::api::{NumberedEvent, ReportPage, ReportSummary};
use bunraku_wire::client::Lines;
use bunraku_wire::endpoints::{Endpoint, FindReport, ListReportEvents, ListReports, ReportsQuery};
use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;

use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_names::resolve_one;
use crate::node_view::causes;
use crate::output::{self, Table, ago};
use crate::report_view::{self, counts, state};

#[derive(Subcommand)]
pub(crate) enum ReportCommand {
    /// List reports, newest first
    #[command(after_help = "Examples:
  bunraku report list --failed
  bunraku report list --node web-1.example.com --json | jq -r '.[].run'")]
    List {
        /// Only reports of this node
        #[arg(long)]
        node: Option<NodeName>,
        /// Only reports of runs that did not succeed, or whose node is lost
        #[arg(long)]
        failed: bool,
        /// Only reports of unfinished runs
        #[arg(long)]
        unfinished: bool,
        /// Maximum number of reports
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show a report: changes, failures and durations
    #[command(
        after_help = "Examples:\n  bunraku report show 3f9a12cd\n  bunraku report show 3f9a12cd --all --logs"
    )]
    Show {
        /// Run id, or a prefix of it
        run: String,
        /// Include unchanged resources
        #[arg(long)]
        all: bool,
        /// Include log lines
        #[arg(long)]
        logs: bool,
    },
    /// Follow events as they happen
    #[command(
        after_help = "Examples:\n  bunraku report follow\n  bunraku report follow --node web-1.example.com"
    )]
    Follow {
        /// Only reports of this node
        #[arg(long)]
        node: Option<NodeName>,
        /// Include unchanged resources and log lines
        #[arg(long)]
        all: bool,
    },
}

pub(crate) fn run(command: ReportCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            ReportCommand::List {
                node,
                failed,
                unfinished,
                limit,
            } => {
                let node = match node {
                    Some(node) => Some(resolve_one(&client, node).await?),
                    None => None,
                };
                let query = ReportsQuery {
                    node,
                    failed,
                    unfinished,
                    ..ReportsQuery::default()
                };
                list(&client, query, limit, json).await
            }
            ReportCommand::Show { run, all, logs } => show(&client, &run, all, logs, json).await,
            ReportCommand::Follow { node, all } => {
                report_view::follow(&client, node.as_ref(), all, json).await
            }
        }
    })
}

async fn list(
    client: &Client,
    mut query: ReportsQuery,
    limit: usize,
    json: bool,
) -> Result<Exit, Failure> {
    let mut reports: Vec<ReportSummary> = Vec::new();
    while reports.len() < limit {
        query.limit = Some((limit - reports.len()).min(1_000));
        let page = client.call(ListReports.with_query((), &query)).await;
        let page: ReportPage = page.map_err(|error| failed(&error))?;
        reports.extend(page.reports);
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let empty = "no matching reports\n\nhint: `bunraku node run --all` runs all nodes";
    if !output::has_rows(&reports, json, empty)? {
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["RUN", "NODE", "STATE", "AGO", "RESOURCES", "CAUSES"]);
    for report in &reports {
        table.row(vec![
            report.run.to_string(),
            report.node.to_string(),
            with_repeats(state(report), report),
            ago(report.last_received, now),
            counts(&report.counts),
            causes(&report.started.causes, report.started.more_causes),
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

/// Adds the number of runs that the report stands for, as in `succeeded ×48`.
fn with_repeats(state: String, report: &ReportSummary) -> String {
    match report.repeats {
        Some(repeats) => format!("{state} ×{}", repeats.count + 1),
        None => state,
    }
}

#[derive(Serialize)]
struct WholeReport {
    #[serde(flatten)]
    summary: ReportSummary,
    events: Vec<NumberedEvent>,
}

async fn show(
    client: &Client,
    run: &str,
    all: bool,
    logs: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let summary: ReportSummary = client
        .call(FindReport.at(&run.to_owned()))
        .await
        .map_err(|error| failed(&error))?;
    let at = ListReportEvents.at((&summary.node, &summary.run));
    let mut lines: Lines<NumberedEvent> =
        client.follow(at).await.map_err(|error| failed(&error))?;
    let mut events = Vec::new();
    while let Some(event) = lines.next().await {
        events.push(event.map_err(|error| failed(&error))?);
    }
    if json {
        output::json(&WholeReport { summary, events })?;
        return Ok(Exit::Done);
    }
    let state = state(&summary);
    output::write(&report_view::render_report(
        &summary, &state, &events, all, logs,
    ))?;
    Ok(Exit::Done)
}
