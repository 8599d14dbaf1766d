//! `bunraku status`: is everything healthy, and if not, what is wrong and what to do.

use bunraku_model::StatusWord;
use bunraku_plan::run::RunSummary;
use bunraku_wire::api::cluster::ClusterStatus;
use bunraku_wire::api::{
    EnvironmentSummary, NodeSummary, PendingRequest, ReleaseList, ServerStatus,
};
use bunraku_wire::endpoints::{
    Endpoint, ListCertificateRequests, ListEnvironments, ListNodes, ListReleases, ListRuns,
    ShowCluster, ShowServer,
};
use bunraku_wire::{Client, ClientError};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster_view::{is_whole, summary};
use crate::compile_view::compiled_words;
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, ago, count};

/// The number of nodes that a problem names.
const NAMED: usize = 3;

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku status
  bunraku status --json | jq '.problems[].hint'

Exit code 0: everything is healthy. Exit code 3: there are problems.
`bunraku doctor` checks this machine's own configuration and connection.")]
pub(crate) struct StatusArguments {}

/// Something that needs attention.
#[derive(Serialize)]
struct Problem {
    problem: String,
    hint: String,
}

#[derive(Serialize)]
struct Status {
    healthy: bool,
    server: ServerStatus,
    /// The state of the cluster in one line; absent for a single server.
    cluster: Option<String>,
    nodes: NodeCounts,
    environments: Vec<EnvironmentState>,
    active_runs: usize,
    problems: Vec<Problem>,
}

#[derive(Serialize, Default)]
struct NodeCounts {
    total: usize,
    new: usize,
    idle: usize,
    running: usize,
    disabled: usize,
    lost: usize,
    failed: usize,
    drifted: usize,
}

#[derive(Serialize)]
struct EnvironmentState {
    name: String,
    compiled: String,
    release: Option<u64>,
    held: Option<String>,
    waiting: usize,
}

/// The answers of a server.
struct Answers {
    server: ServerStatus,
    cluster: Option<ClusterStatus>,
    nodes: Vec<NodeSummary>,
    environments: Vec<(EnvironmentSummary, ReleaseList)>,
    runs: Vec<RunSummary>,
    requests: Vec<PendingRequest>,
    /// `true` if the access rules hide something.
    is_limited: bool,
}

pub(crate) fn run(_: &StatusArguments, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        let answers = ask(&client).await?;
        let status = judge(&answers);
        if json {
            output::json(&status)?;
        } else {
            output::write(&render(&status, Timestamp::now()))?;
        }
        if let Some(capacity) = &status.server.capacity
            && !json
            && !capacity.is_exceeded()
        {
            note!("\nnote: {}; see docs/scale.md", capacity.sentence());
        }
        if answers.is_limited {
            note!("\nnote: this shows only what you may view; see `bunraku access list --mine`");
        }
        Ok(if status.healthy {
            Exit::Done
        } else {
            Exit::SomeNodesFailed
        })
    })
}

async fn ask(client: &Client) -> Result<Answers, Failure> {
    let server = client.call(ShowServer).await;
    let server = server.map_err(|error| failed(&error))?;
    let mut is_limited = false;
    let cluster = match client.call(ShowCluster).await {
        Ok(status) => Some(status),
        // The server is not a member of a cluster.
        Err(error) if error.status() == Some(409) => None,
        Err(error) if is_not_permitted(&error) => {
            is_limited = true;
            None
        }
        Err(error) => return Err(failed(&error)),
    };
    let nodes = client.call(ListNodes).await;
    let environments = client.call(ListEnvironments).await;
    let runs = client.call(ListRuns).await;
    let requests = match client.call(ListCertificateRequests).await {
        Err(error) if is_not_permitted(&error) => {
            is_limited = true;
            Ok(Vec::new())
        }
        requests => requests,
    };
    let mut with_releases = Vec::new();
    for environment in environments.map_err(|error| failed(&error))? {
        let releases = client.call(ListReleases.at(&environment.name)).await;
        with_releases.push((environment, releases.map_err(|error| failed(&error))?));
    }
    Ok(Answers {
        server,
        cluster,
        nodes: nodes.map_err(|error| failed(&error))?,
        environments: with_releases,
        runs: runs.map_err(|error| failed(&error))?,
        requests: requests.map_err(|error| failed(&error))?,
        is_limited,
    })
}

/// Returns whether the access rules do not allow it.
fn is_not_permitted(error: &ClientError) -> bool {
    error.status() == Some(403)
}

fn judge(answers: &Answers) -> Status {
    let mut problems = Vec::new();
    if let Some(cluster) = &answers.cluster
        && !is_whole(cluster)
    {
        problems.push(Problem {
            problem: format!("the cluster is degraded: {}", summary(cluster)),
            hint: "see which server is away with `bunraku cluster status`".to_owned(),
        });
    }
    if let Some(problem) = &answers.server.s3_problem {
        problems.push(Problem {
            problem: format!("content in S3 cannot be used: {problem}"),
            hint: "see `bunraku store status`; nothing is lost, and servers try again".to_owned(),
        });
    }
    if let Some(history) = &answers.server.history
        && let Some(why) = &history.outage
    {
        problems.push(Problem {
            problem: format!("history is unavailable: {why}"),
            hint: "start PostgreSQL or repair it; agents keep their reports and send them later"
                .to_owned(),
        });
    }
    if let Some(capacity) = &answers.server.capacity
        && capacity.is_exceeded()
    {
        problems.push(Problem {
            problem: capacity.sentence(),
            hint: format!("add {}; see docs/scale.md", capacity.add.join(" and ")),
        });
    }
    node_problems(&answers.nodes, &mut problems);
    environment_problems(answers, &mut problems);
    if !answers.requests.is_empty() {
        let one = answers.requests.len() == 1;
        problems.push(Problem {
            problem: format!(
                "{} {} for a signature",
                count(answers.requests.len(), "certificate request"),
                if one { "waits" } else { "wait" }
            ),
            hint: "see them with `bunraku cert requests`".to_owned(),
        });
    }
    Status {
        healthy: problems.is_empty(),
        server: answers.server.clone(),
        cluster: answers.cluster.as_ref().map(summary),
        nodes: count_nodes(&answers.nodes),
        environments: answers.environments.iter().map(state).collect(),
        active_runs: answers.runs.iter().filter(|run| run.end.is_none()).count(),
        problems,
    }
}

fn count_nodes(nodes: &[NodeSummary]) -> NodeCounts {
    let mut counts = NodeCounts {
        total: nodes.len(),
        ..NodeCounts::default()
    };
    for node in nodes {
        let counter = match node.word {
            StatusWord::New => &mut counts.new,
            StatusWord::Idle => &mut counts.idle,
            StatusWord::Running => &mut counts.running,
            StatusWord::Disabled => &mut counts.disabled,
            StatusWord::Lost => &mut counts.lost,
        };
        *counter += 1;
        counts.failed += usize::from(node.has_failed());
        counts.drifted += usize::from(node.has_drifted());
    }
    counts
}

fn node_problems(nodes: &[NodeSummary], problems: &mut Vec<Problem>) {
    let mut add = |which: fn(&NodeSummary) -> bool, what: &str, hint: &str| {
        let found: Vec<&str> = (nodes.iter().filter(|node| which(node)))
            .map(|node| node.name.as_str())
            .collect();
        if !found.is_empty() {
            problems.push(Problem {
                problem: format!("{} {what}: {}", count(found.len(), "node"), named(&found)),
                hint: hint.to_owned(),
            });
        }
    };
    add(
        |node| node.word == StatusWord::Lost,
        "lost",
        "see since when and why with `bunraku node list --status lost`",
    );
    add(
        NodeSummary::has_failed,
        "failed in the last run",
        "see what failed with `bunraku node list --failed`",
    );
    add(
        |node| node.word == StatusWord::New,
        "never connected",
        "start the agent there with `bunraku agent`",
    );
}

fn environment_problems(answers: &Answers, problems: &mut Vec<Problem>) {
    for (environment, _) in &answers.environments {
        let name = &environment.name;
        if environment.progress.failed > 0 {
            problems.push(Problem {
                problem: format!(
                    "{} of {name} could not be compiled",
                    count(environment.progress.failed, "node")
                ),
                hint: format!("see why with `bunraku environment show {name}`"),
            });
        }
        if environment.deployed.is_none() {
            problems.push(Problem {
                problem: format!("environment {name} has no code yet"),
                hint: format!("deploy it with `bunraku environment deploy {name} --wait`"),
            });
        }
    }
}

fn state((environment, releases): &(EnvironmentSummary, ReleaseList)) -> EnvironmentState {
    let hold = releases.hold.as_ref();
    EnvironmentState {
        name: environment.name.to_string(),
        compiled: compiled_words(&environment.progress),
        release: releases.releases.first().map(|release| release.number.0),
        held: hold.map(|hold| format!("{} ({})", hold.reason, hold.by)),
        waiting: releases.waiting,
    }
}

/// Returns the first names, and the number of others.
fn named(names: &[&str]) -> String {
    let first = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn render(status: &Status, now: Timestamp) -> String {
    let server = &status.server;
    let mut text = match status.problems.len() {
        0 => "Everything is healthy.\n\n".to_owned(),
        problems => format!("{} found.\n\n", count(problems, "problem")),
    };
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<13} {value}\n"));
    line(
        "server",
        format!(
            "version {}, {} store, up for {}, {} connected",
            server.version,
            server.store,
            ago(server.started, now),
            count(server.connected_agents, "agent")
        ),
    );
    if let Some(cluster) = &status.cluster {
        line("cluster", cluster.clone());
    }
    line("nodes", node_words(&status.nodes));
    for environment in &status.environments {
        line("environment", environment_words(environment));
    }
    if status.environments.is_empty() {
        line("environment", "none".to_owned());
    }
    line("runs", count(status.active_runs, "active ordered run"));
    for Problem { problem, hint } in &status.problems {
        text.push_str(&format!("\n✗ {problem}\n  {hint}\n"));
    }
    text
}

fn node_words(nodes: &NodeCounts) -> String {
    let counts = [
        (nodes.idle, "idle"),
        (nodes.running, "running"),
        (nodes.new, "new"),
        (nodes.disabled, "disabled"),
        (nodes.lost, "lost"),
        (nodes.failed, "failed in the last run"),
        (nodes.drifted, "with drift"),
    ];
    let words: Vec<String> = (counts.iter().filter(|(number, _)| *number > 0))
        .map(|(number, word)| format!("{number} {word}"))
        .collect();
    if words.is_empty() {
        return count(nodes.total, "node");
    }
    format!("{}: {}", count(nodes.total, "node"), words.join(", "))
}

fn environment_words(environment: &EnvironmentState) -> String {
    let mut words = vec![environment.compiled.clone()];
    words.push(match environment.release {
        Some(number) => format!("release {number}"),
        None => "nothing released".to_owned(),
    });
    if environment.waiting > 0 {
        words.push(format!(
            "{} compiled but not released",
            count(environment.waiting, "node")
        ));
    }
    if let Some(held) = &environment.held {
        words.push(format!("held: {held}"));
    }
    format!("{}: {}", environment.name, words.join(", "))
}
