//! `bunraku release`: create, show, compare and roll back releases.

use bunraku_model::{CodeId, EnvironmentName, NodeName, ReleaseNumber};
use bunraku_wire::Client;
use bunraku_wire::api::{
    CreateRelease, FleetDiff, HoldRequest, NodeWithoutCatalog, OverrideRelease, ReleaseDetail,
    ReleaseGroup, ReleaseHold, ReleaseJoinRule, ReleaseKind, ReleaseList, ReleaseReply,
    ReleaseState, ReleaseSummary, ReleaseTo, RollbackRequest, RunMode,
};
use bunraku_wire::endpoints::{
    self, CompareReleases, Endpoint, HoldReleases, ListReleases, ReleaseDiffQuery, ReleaseSelector,
    ReleaseWaitQuery, ResumeReleases, RollBackRelease, ShowRelease,
};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use super::approval;
use crate::connection::failed;
use crate::context::Context;
use crate::diff_view;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table};
use crate::release_groups::{later_nodes, left_on, mode, rolled_back_note, without_catalog};

#[derive(Subcommand)]
pub(crate) enum ReleaseCommand {
    /// Release the newest compiled catalogs to all or some nodes
    #[command(after_help = "Examples:
  bunraku release create production
  bunraku release create production --percent 10 --reason 'new kernel settings'
  bunraku release create production --nodes web-1.example.com --noop
  bunraku release create production --query 'nodes { facts.os.family = \"Debian\" }'

Other nodes keep their catalogs. Exit code 4: someone else created a release in the meantime.")]
    Create(CreateArguments),
    /// List the releases of an environment, newest first
    #[command(after_help = "Example:\n  bunraku release list production")]
    List {
        /// Name of the environment
        environment: EnvironmentName,
    },
    /// Show a release and its catalogs
    #[command(
        after_help = "Examples:\n  bunraku release show production\n  bunraku release show production 12 --json"
    )]
    Show {
        /// Name of the environment
        environment: EnvironmentName,
        /// Number of the release [default: the newest]
        number: Option<ReleaseNumber>,
        /// Wait until every node's target shows the release, at most one minute
        #[arg(long)]
        wait: bool,
    },
    /// Show what a release changed, or what releasing everything would change
    #[command(after_help = "Examples:
  bunraku release diff production            what the newest release changed
  bunraku release diff production 7 --against 4
  bunraku release diff production --held     what is compiled but not released")]
    Diff {
        /// Name of the environment
        environment: EnvironmentName,
        /// Number of the release [default: the newest]
        number: Option<ReleaseNumber>,
        /// Compare with this release instead of the parent
        #[arg(long, value_name = "NUMBER")]
        against: Option<ReleaseNumber>,
        /// Compare the current targets with the held catalogs
        #[arg(long, conflicts_with_all = ["number", "against"])]
        held: bool,
        /// Exit with 2 if there are differences
        #[arg(long)]
        detailed_exitcodes: bool,
    },
    /// Pause automatic releases of an environment until `release resume`
    #[command(
        after_help = "Example:\n  bunraku release hold production --reason 'until the audit is done'"
    )]
    Hold {
        /// Name of the environment
        environment: EnvironmentName,
        /// Reason, shown with the environment
        #[arg(long)]
        reason: String,
    },
    /// Resume automatic releases
    #[command(after_help = "Example:\n  bunraku release resume production")]
    Resume {
        /// Name of the environment
        environment: EnvironmentName,
    },
    /// Roll back: create a release with the content of an older one
    #[command(after_help = "Example:
  bunraku release rollback production --to 12 --reason 'nginx does not start'

Nodes that joined after that release are compiled from its code. No node receives the rolled-back
code until someone releases it again. This also holds the environment.")]
    Rollback {
        /// Name of the environment
        environment: EnvironmentName,
        /// Release to return to [default: the one before the newest; a second rollback goes back
        /// further]
        #[arg(long, value_name = "NUMBER")]
        to: Option<ReleaseNumber>,
        /// Newest release that you know of; refused if there is a newer one
        #[arg(long, value_name = "NUMBER")]
        parent: Option<ReleaseNumber>,
        /// Reason, shown with the release
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Args)]
pub(crate) struct CreateArguments {
    /// Name of the environment
    environment: EnvironmentName,
    /// Release only to these nodes
    #[arg(long, value_delimiter = ',', value_name = "NODE,…", group = "to")]
    nodes: Vec<NodeName>,
    /// Release only to the nodes that a query finds
    #[arg(long, group = "to")]
    query: Option<String>,
    /// Percentage of nodes. Raising it keeps the nodes already included
    #[arg(long, group = "to", value_parser = percentage)]
    percent: Option<f64>,
    /// Release for noop only: nodes report changes and never enforce them
    #[arg(long)]
    noop: bool,
    /// Newest release that you know of (0: none); refused if there is a newer one
    #[arg(long, value_name = "NUMBER")]
    parent: Option<ReleaseNumber>,
    /// Reason, shown with the release
    #[arg(long)]
    reason: Option<String>,
    /// Do not wait until every node's target shows the release
    #[arg(long)]
    no_wait: bool,
    /// In an emergency, release without the approval that the environment requires, for this reason
    #[arg(long, value_name = "REASON")]
    override_approval: Option<String>,
}

fn percentage(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("a percentage is more than 0 and at most 100".to_owned()),
    }
}

pub(crate) fn run(command: ReleaseCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            ReleaseCommand::Create(arguments) => create(&client, arguments, json).await,
            ReleaseCommand::List { environment } => list(&client, &environment, json).await,
            ReleaseCommand::Show {
                environment,
                number,
                wait,
            } => show(&client, &environment, number, wait, json).await,
            ReleaseCommand::Diff {
                environment,
                number,
                against,
                held,
                detailed_exitcodes,
            } => {
                let query = ReleaseDiffQuery {
                    before: against,
                    after: number,
                    held,
                };
                let at = CompareReleases.with_query(&environment, &query);
                let diff: FleetDiff = client.call(at).await.map_err(|error| failed(&error))?;
                if diff.compared == 0 && !diff.without_catalog.is_empty() && !json {
                    note_first_catalogs(&environment, number, held, &diff);
                    return Ok(Exit::Done);
                }
                print_fleet(&diff, json, detailed_exitcodes)
            }
            ReleaseCommand::Hold {
                environment,
                reason,
            } => hold(&client, &environment, reason, json).await,
            ReleaseCommand::Resume { environment } => {
                let resumed = client.call(ResumeReleases.at(&environment)).await;
                resumed.map_err(|error| failed(&error))?;
                note!("Resumed {environment}; its release policy applies again.");
                note_rolled_back(&client, &environment).await
            }
            ReleaseCommand::Rollback {
                environment,
                to,
                parent,
                reason,
            } => {
                let request = RollbackRequest {
                    parent,
                    release: to,
                    reason,
                };
                let reply: ReleaseReply = client
                    .call_with(RollBackRelease.at(&environment), &request)
                    .await
                    .map_err(|error| failed(&error))?;
                rolled_back(&client, &environment, &reply, json).await
            }
        }
    })
}

async fn create(client: &Client, arguments: CreateArguments, json: bool) -> Result<Exit, Failure> {
    let CreateArguments {
        environment,
        nodes,
        query,
        percent,
        noop,
        parent,
        reason,
        no_wait,
        override_approval,
    } = arguments;
    let to = match (nodes.is_empty(), query, percent) {
        (false, ..) => ReleaseTo::Nodes { nodes },
        (_, Some(query), _) => ReleaseTo::Query { query },
        (_, _, Some(percent)) => ReleaseTo::Percentage { percent },
        _ => ReleaseTo::Everything,
    };
    let request = CreateRelease {
        parent,
        to,
        mode: if noop {
            RunMode::Noop
        } else {
            RunMode::Enforce
        },
        reason,
    };
    let reply = match override_approval {
        None => {
            let at = endpoints::CreateRelease.at(&environment);
            client.call_with(at, &request).await
        }
        Some(reason) => {
            let at = endpoints::OverrideRelease.at(&environment);
            let request = OverrideRelease { request, reason };
            client.call_with(at, &request).await
        }
    };
    let reply: ReleaseReply = reply.map_err(|error| failed(&error))?;
    if let Some(approval) = &reply.approval {
        if json {
            output::json(&reply)?;
        }
        let id = approval::short(&approval.id);
        note!(
            "Nothing is released yet: `{environment}` requires approval by someone else until {:.0}.\n\nhint: another operator approves it with `bunraku approval approve {id}`",
            approval.expires
        );
        return Ok(Exit::Refused);
    }
    report(client, &environment, &reply, !no_wait, json).await
}

async fn report(
    client: &Client,
    environment: &EnvironmentName,
    reply: &ReleaseReply,
    wait: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let Some(release) = &reply.release else {
        if json {
            output::json(reply)?;
        } else {
            note!("nothing to release: all selected nodes already have their newest catalog");
        }
        return Ok(Exit::Done);
    };
    let state = if wait {
        applied(client, release).await?
    } else {
        ReleaseState::Applying
    };
    if json {
        output::json(reply)?;
    } else {
        output::write(&format!("{}\n", summary_line(release, Some(state))))?;
        if let Some(hold) = &reply.hold {
            note!("held: {} ({})", hold.reason, hold.by);
        }
        let number = release.number;
        match release.parent {
            Some(_) => note!(
                "\nhint: see what it changed with `bunraku release diff {environment} {number}`"
            ),
            None => {
                note!("\nhint: see its catalogs with `bunraku release show {environment} {number}`")
            }
        }
    }
    Ok(Exit::Done)
}

/// Reports a rollback, and what it leaves each group of nodes on. Waits for one minute at most until
/// nodes that joined later are compiled.
async fn rolled_back(
    client: &Client,
    environment: &EnvironmentName,
    reply: &ReleaseReply,
    json: bool,
) -> Result<Exit, Failure> {
    crate::waiting::for_what("waiting until all nodes are compiled and released");
    let wait = ReleaseWaitQuery {
        wait_seconds: 60,
        complete: true,
    };
    let at = ShowRelease.with_query((environment, &ReleaseSelector::Current), &wait);
    let detail: ReleaseDetail = client.call(at).await.map_err(|error| failed(&error))?;
    if json {
        output::json(&RollbackOutcome {
            release: reply.release.as_ref(),
            hold: reply.hold.as_ref(),
            groups: detail.groups(),
            without_catalog: &detail.without_catalog,
            join_rules: &detail.join_rules,
            rolled_back: &detail.rolled_back,
            is_complete: detail.is_complete,
        })?;
        return Ok(Exit::Done);
    }
    let Some(release) = &reply.release else {
        note!("nothing to roll back: all nodes already have the catalogs of that release");
        return Ok(Exit::Done);
    };
    // Nodes that were compiled meanwhile came with releases of their own.
    let state = match detail.state {
        ReleaseState::Applying => ReleaseState::Applying,
        _ => ReleaseState::Current,
    };
    let mut text = format!("{}\n", summary_line(release, Some(state)));
    text += &left_on(&detail);
    output::write(&text)?;
    if let Some(hold) = &reply.hold {
        note!("held: {} ({})", hold.reason, hold.by);
    }
    let number = release.number;
    note!("\nhint: see what it changed with `bunraku release diff {environment} {number}`");
    Ok(Exit::Done)
}

/// The output of a rollback as JSON.
#[derive(Serialize)]
struct RollbackOutcome<'a> {
    release: Option<&'a ReleaseSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<&'a ReleaseHold>,
    groups: Vec<ReleaseGroup>,
    without_catalog: &'a [NodeWithoutCatalog],
    join_rules: &'a [ReleaseJoinRule],
    rolled_back: &'a [CodeId],
    is_complete: bool,
}

/// Says which code is not released automatically because it was rolled back.
async fn note_rolled_back(client: &Client, environment: &EnvironmentName) -> Result<Exit, Failure> {
    let list = client.call(ListReleases.at(environment)).await;
    let list: ReleaseList = list.map_err(|error| failed(&error))?;
    if let Some(text) = rolled_back_note(environment, &list.rolled_back) {
        note!("{text}");
    }
    Ok(Exit::Done)
}

/// Waits for one minute at most. The servers continue without this command.
async fn applied(client: &Client, release: &ReleaseSummary) -> Result<ReleaseState, Failure> {
    crate::waiting::for_what("waiting until every node's target shows the release");
    let ReleaseSummary {
        environment,
        number,
        ..
    } = release;
    let wait = ReleaseWaitQuery {
        wait_seconds: 60,
        complete: false,
    };
    let number = ReleaseSelector::Number(*number);
    let at = ShowRelease.with_query((environment, &number), &wait);
    let detail: ReleaseDetail = client.call(at).await.map_err(|error| failed(&error))?;
    Ok(detail.state)
}

/// `release 4  production  everything  enforce  12 of 40 nodes changed  current`
fn summary_line(release: &ReleaseSummary, state: Option<ReleaseState>) -> String {
    let mut parts = vec![
        format!("release {}", release.number),
        release.environment.to_string(),
        kind(&release.kind),
        mode(release.mode).to_owned(),
        format!(
            "{} of {} changed",
            release.changed,
            output::count(release.nodes, "node")
        ),
    ];
    parts.extend(state.map(|state| state_word(state).to_owned()));
    parts.join("  ")
}

fn kind(kind: &ReleaseKind) -> String {
    match kind {
        ReleaseKind::Created(ReleaseTo::Everything) => "to all nodes".to_owned(),
        ReleaseKind::Created(ReleaseTo::Nodes { nodes }) => match nodes.as_slice() {
            [one] => format!("to {one}"),
            several => format!("to {} nodes", several.len()),
        },
        ReleaseKind::Created(ReleaseTo::Query { query }) => format!("to `{query}`"),
        ReleaseKind::Created(ReleaseTo::Percentage { percent }) => format!("to {percent} %"),
        ReleaseKind::Auto => "auto".to_owned(),
        ReleaseKind::Added { rule_of } => format!("new nodes, as in release {rule_of}"),
        ReleaseKind::Rollback { release } => format!("rollback to {release}"),
    }
}

fn state_word(state: ReleaseState) -> &'static str {
    match state {
        ReleaseState::Applying => "applying",
        ReleaseState::Current => "current",
        ReleaseState::Replaced => "replaced",
    }
}

async fn list(client: &Client, environment: &EnvironmentName, json: bool) -> Result<Exit, Failure> {
    let list = client.call(ListReleases.at(environment)).await;
    let list: ReleaseList = list.map_err(|error| failed(&error))?;
    if json {
        output::json(&list)?;
        return Ok(Exit::Done);
    }
    if !list.releases.is_empty() {
        let now = Timestamp::now();
        let heads = [
            "RELEASE", "WHAT", "MODE", "CODE", "CHANGED", "NODES", "AGE", "BY", "REASON",
        ];
        let mut table = Table::new(&heads);
        for release in &list.releases {
            table.row(row(release, now));
        }
        table.print()?;
    }
    if let Some(hold) = &list.hold {
        let since = output::ago(hold.since, Timestamp::now());
        note!("held for {since} by {}: {}", hold.by, hold.reason);
    }
    if let Some(text) = rolled_back_note(environment, &list.rolled_back) {
        note!("\n{text}");
    }
    match list.waiting {
        0 if list.releases.is_empty() => {
            note!("{environment} has no releases and no compiled catalogs")
        }
        0 => {}
        waiting => note!(
            "\n{} compiled but not released\nhint: see what would change with `bunraku release diff {environment} --held`",
            output::count(waiting, "node")
        ),
    }
    Ok(Exit::Done)
}

fn row(release: &ReleaseSummary, now: Timestamp) -> Vec<String> {
    let code = release.code_id.as_ref().map_or("-", |code| code.short());
    vec![
        release.number.to_string(),
        kind(&release.kind),
        mode(release.mode).to_owned(),
        code.to_owned(),
        release.changed.to_string(),
        release.nodes.to_string(),
        output::ago(release.created, now),
        release.by.clone(),
        release.reason.clone().unwrap_or_default(),
    ]
}

async fn show(
    client: &Client,
    environment: &EnvironmentName,
    number: Option<ReleaseNumber>,
    wait: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let number = number.map_or(ReleaseSelector::Current, ReleaseSelector::Number);
    let wait = ReleaseWaitQuery {
        wait_seconds: if wait { 60 } else { 0 },
        complete: false,
    };
    let at = ShowRelease.with_query((environment, &number), &wait);
    let detail: ReleaseDetail = client.call(at).await.map_err(|error| failed(&error))?;
    if json {
        output::json(&detail)?;
        return Ok(Exit::Done);
    }
    let release = &detail.summary;
    let mut text = format!("{}\n", summary_line(release, Some(detail.state)));
    let parent = release
        .parent
        .map_or_else(|| "none".to_owned(), |parent| parent.to_string());
    let created = output::time(release.created);
    text += &format!("created {created} by {}, parent {parent}\n", release.by);
    if let Some(reason) = &release.reason {
        text += &format!("reason: {reason}\n");
    }
    let mut table = Table::new(&["NODE", "CATALOG", "CODE", "MODE", "SINCE"]);
    for entry in &detail.map {
        let code = entry.code_id.as_ref().map_or("-", |code| code.short());
        table.row(vec![
            entry.node.to_string(),
            entry.catalog.0.short(),
            code.to_owned(),
            mode(entry.mode).to_owned(),
            format!("release {}", entry.since),
        ]);
    }
    text += &format!("\n{}", table.render());
    let later = later_nodes(&detail);
    if !later.is_empty() {
        text += &format!("\nnodes that join later:\n{later}");
    }
    let without = without_catalog(&detail);
    if !without.is_empty() {
        text += &format!("\n{without}");
    }
    output::write(&text)?;
    Ok(Exit::Done)
}

/// Says that there is nothing to compare a first release with, and how to see it.
fn note_first_catalogs(
    environment: &EnvironmentName,
    number: Option<ReleaseNumber>,
    held: bool,
    diff: &FleetDiff,
) {
    let nodes = output::count(diff.without_catalog.len(), "node");
    let number = number.map_or_else(String::new, |number| format!(" {number}"));
    let see = if held {
        format!("bunraku catalog list --environment {environment}")
    } else {
        format!("bunraku release show {environment}{number}")
    };
    note!("Nothing to compare: these are the first catalogs of {nodes}.");
    note!("\nhint: see them with `{see}`");
}

async fn hold(
    client: &Client,
    environment: &EnvironmentName,
    reason: String,
    json: bool,
) -> Result<Exit, Failure> {
    let held: ReleaseHold = client
        .call_with(HoldReleases.at(environment), &HoldRequest { reason })
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&held)?;
    } else {
        note!(
            "Automatic releases in {environment} are on hold.\n\nhint: resume them with `bunraku release resume {environment}`"
        );
    }
    Ok(Exit::Done)
}

/// Prints the differences of a fleet.
pub(super) fn print_fleet(
    diff: &FleetDiff,
    json: bool,
    detailed_exitcodes: bool,
) -> Result<Exit, Failure> {
    if json {
        output::json(diff)?;
    } else {
        let text = diff_view::fleet(diff);
        diff_view::print(&text);
        let gap = if text.is_empty() { "" } else { "\n" };
        note!("{gap}{}", diff_view::summary(diff));
    }
    Ok(match (diff.failures.is_empty(), diff.groups.is_empty()) {
        (false, _) => Exit::SomeNodesFailed,
        (true, false) if detailed_exitcodes => Exit::Changes,
        _ => Exit::Done,
    })
}
