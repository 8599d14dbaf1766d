//! The pages of all nodes and of one node.

use bunraku_console::{Count, FactLine, NodeLine, NodePage, NodesPage, ReportLine, Section, Tone};
use bunraku_model::{Connection, NodeName, StatusWord};
use bunraku_wire::api::{
    Cause, CompileStatus, CompileStatusRequest, FactsReply, NodeQueue, NodeSummary, ReportPage,
    ReportState, ReportSummary,
};
use bunraku_wire::endpoints::{
    Endpoint, ListNodes, ListReports, ReportsQuery, ShowCompiles, ShowFacts, ShowNode,
    ShowNodeQueue,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::page::{PageError, Source};
use crate::compile_view::{outcome_words, problem_lines};
use crate::node_view::{causes, describe_entry, last_run, note};
use crate::output::ago;
use crate::report_view::{counts, state};

/// The maximum number of nodes on one page. More would not be useful.
const MOST_NODES: usize = 500;
const MOST_FACTS: usize = 200;
const MOST_REPORTS: usize = 15;

/// The filter for nodes whose last run failed.
const FAILED: &str = "failed";
/// The filter for nodes whose last run found drift.
const DRIFTED: &str = "drifted";

/// A condition of a node that is counted.
type NodeTest = fn(&NodeSummary) -> bool;

const UNUSUAL_FIRST: [StatusWord; 5] = [
    StatusWord::Lost,
    StatusWord::Disabled,
    StatusWord::Running,
    StatusWord::New,
    StatusWord::Idle,
];

/// The filter that the user entered.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeFilter {
    name: String,
    status: String,
}

impl NodeFilter {
    fn matches(&self, node: &NodeSummary) -> bool {
        let word = match self.status.as_str() {
            "" => true,
            FAILED => node.has_failed(),
            DRIFTED => node.has_drifted(),
            status => status == node.word.as_str(),
        };
        word && node.name.as_str().contains(self.name.trim())
    }
}

pub(super) async fn all(source: &Source, wanted: &NodeFilter) -> Result<NodesPage, PageError> {
    let (servers, nodes) = tokio::try_join!(source.servers(), source.call(ListNodes))?;
    let nodes: Vec<NodeSummary> = nodes;
    let counts = by_status(&nodes);
    let mut found: Vec<NodeSummary> = nodes.into_iter().filter(|it| wanted.matches(it)).collect();
    found.sort_by(|one, other| {
        let unusual = place(one).cmp(&place(other));
        unusual.then_with(|| one.name.cmp(&other.name))
    });
    let more = found.len().saturating_sub(MOST_NODES);
    let now = Timestamp::now();
    Ok(NodesPage {
        frame: source.frame("Nodes", Section::Nodes, &servers),
        counts,
        wanted: wanted.name.trim().to_owned(),
        word: wanted.status.clone(),
        nodes: (found.iter().take(MOST_NODES))
            .map(|node| line(node, now))
            .collect(),
        more,
    })
}

/// Returns the position of a node in the list: failed ones first.
fn place(node: &NodeSummary) -> (bool, usize) {
    let place = UNUSUAL_FIRST.iter().position(|it| *it == node.word);
    (!node.has_failed(), place.unwrap_or_default())
}

/// Counts all nodes, and the nodes of each status that occurs.
pub(super) fn by_status(nodes: &[NodeSummary]) -> Vec<Count> {
    let mut counts = vec![Count {
        number: nodes.len(),
        what: "nodes".to_owned(),
        tone: Tone::Quiet,
        path: "/nodes".to_owned(),
    }];
    let conditions: [(&str, Tone, NodeTest); 2] = [
        (FAILED, Tone::Bad, NodeSummary::has_failed),
        (DRIFTED, Tone::Warn, NodeSummary::has_drifted),
    ];
    for (what, tone, applies) in conditions {
        let number = nodes.iter().filter(|node| applies(node)).count();
        if number > 0 {
            counts.push(Count {
                number,
                what: what.to_owned(),
                tone,
                path: format!("/nodes?status={what}"),
            });
        }
    }
    for word in UNUSUAL_FIRST {
        let number = nodes.iter().filter(|node| node.word == word).count();
        if number > 0 {
            counts.push(Count {
                number,
                what: word.as_str().to_owned(),
                tone: tone(word),
                path: format!("/nodes?status={}", word.as_str()),
            });
        }
    }
    counts
}

fn tone(word: StatusWord) -> Tone {
    match word {
        StatusWord::Idle => Tone::Good,
        StatusWord::Running => Tone::Busy,
        StatusWord::Disabled => Tone::Warn,
        StatusWord::Lost => Tone::Bad,
        StatusWord::New => Tone::Quiet,
    }
}

fn line(node: &NodeSummary, now: Timestamp) -> NodeLine {
    NodeLine {
        name: node.name.to_string(),
        environment: node.environment.to_string(),
        word: node.word.as_str().to_owned(),
        tone: match node.word {
            StatusWord::Idle if node.has_failed() => Tone::Bad,
            StatusWord::Idle if node.has_drifted() => Tone::Warn,
            word => tone(word),
        },
        last_run: last_run(node, now),
        since: ago(node.since, now),
        facts: match node.facts_received {
            None => "none".to_owned(),
            Some(received) => format!("{} ago", ago(received, now)),
        },
        note: note(node),
    }
}

pub(super) async fn one(source: &Source, node: &str) -> Result<NodePage, PageError> {
    let name: NodeName = node
        .parse()
        .map_err(|error| PageError::not_found(format!("{error}")))?;
    let newest = ReportsQuery {
        node: Some(name.clone()),
        limit: Some(MOST_REPORTS),
        ..ReportsQuery::default()
    };
    let (servers, node, reports): (_, NodeSummary, ReportPage) = tokio::try_join!(
        source.servers(),
        source.call(ShowNode.at(&name)),
        source.call(ListReports.with_query((), &newest)),
    )?;
    // A node that has never connected has neither of these.
    let (facts, queue) = tokio::join!(
        source.client.call(ShowFacts.at(&name)),
        source.client.call(ShowNodeQueue.at(&name)),
    );
    let request = CompileStatusRequest {
        nodes: vec![name.clone()],
        wait_seconds: 0,
    };
    let compiles = source.client.call_with(ShowCompiles, &request).await;
    let last = compiles
        .ok()
        .and_then(|all: Vec<CompileStatus>| all.into_iter().next()?.last);
    let failed_compile = last.map(|last| last.outcome);
    let failed_compile = failed_compile.filter(|it| !problem_lines(it).is_empty());
    let now = Timestamp::now();
    let lines = reports
        .reports
        .iter()
        .map(|report| report_line(report, now));
    Ok(NodePage {
        frame: source.frame_below(name.as_str(), Section::Nodes, &servers),
        node: line(&node, now),
        server: match &node.status.connection {
            Connection::Never { .. } => "never connected".to_owned(),
            Connection::Connected { server, since } => {
                format!("to server {server} for {}", ago(*since, now))
            }
            Connection::Lost { reason, since } => {
                format!("lost for {}: {reason}", ago(*since, now))
            }
        },
        agent: node.agent_version.unwrap_or_else(|| "unknown".to_owned()),
        compile: failed_compile
            .as_ref()
            .map(|it| outcome_words(it).to_owned()),
        compile_problems: failed_compile
            .as_ref()
            .map(problem_lines)
            .unwrap_or_default(),
        queue: queue.map_or_else(|_| Vec::new(), |queue| queue_lines(&queue, now)),
        reports: lines.collect(),
        facts: facts.map_or_else(|_| Vec::new(), |reply| fact_lines(&reply)),
    })
}

fn queue_lines(queue: &NodeQueue, now: Timestamp) -> Vec<String> {
    let entries = queue.queue.running.iter().chain(&queue.queue.pending);
    let lines = entries.map(|entry| {
        let (word, since) = match entry.started {
            Some(started) => ("runs", started),
            None => ("waits", entry.queued),
        };
        let why = causes(&entry.causes, entry.more_causes);
        format!(
            "{word} for {}: {} ({why})",
            ago(since, now),
            describe_entry(entry)
        )
    });
    lines.collect()
}

/// Returns the top-level facts in their order, with nested values as JSON.
fn fact_lines(reply: &FactsReply) -> Vec<FactLine> {
    let facts = reply.facts.as_map().iter().take(MOST_FACTS);
    let lines = facts.map(|(name, value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        FactLine {
            name: name.clone(),
            value: text,
        }
    });
    lines.collect()
}

/// Returns the ordered run that caused a node's run.
pub(super) fn ordered_run(report: &ReportSummary) -> Option<String> {
    let mut causes = report.started.causes.iter();
    causes.find_map(|cause| match cause {
        Cause::Run { run } => Some(run.to_string()),
        _ => None,
    })
}

pub(super) fn report_line(report: &ReportSummary, now: Timestamp) -> ReportLine {
    let failures = report.failures.iter().take(3).map(|failure| {
        let message = failure.message.as_deref().unwrap_or("failed");
        format!("{}: {message}", failure.resource)
    });
    ReportLine {
        run: report.run.to_string(),
        node: report.node.to_string(),
        state: state(report),
        tone: match (report.is_failure(), report.state) {
            (true, _) => Tone::Bad,
            (false, ReportState::Running) => Tone::Busy,
            (false, _) => Tone::Good,
        },
        when: format!("{} ago", ago(report.first_received, now)),
        why: causes(&report.started.causes, report.started.more_causes),
        ordered_run: ordered_run(report),
        counts: counts(&report.counts),
        failures: failures.collect(),
    }
}
