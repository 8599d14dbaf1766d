//! Nodes and their queues as text, for tables and pages.

use bunraku_model::{Activity, Administration, Connection};
use bunraku_wire::api::{Cause, LastRun, NodeSummary, QueueEntry, RunMode, RunSubject};
use jiff::Timestamp;

use crate::output::{Table, ago, count};

/// Returns the table of nodes.
pub(crate) fn table(nodes: Vec<NodeSummary>) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(&["NODE", "STATUS", "SINCE", "LAST RUN", "FACTS", "NOTE"]);
    for node in nodes {
        let facts = match node.facts_received {
            None => "none".to_owned(),
            Some(received) => format!("{} ago", ago(received, now)),
        };
        let since = ago(node.since, now);
        let note = note(&node);
        table.row(vec![
            node.name.to_string(),
            node.word.as_str().to_owned(),
            since,
            last_run(&node, now),
            facts,
            note,
        ]);
    }
    table
}

/// Returns the ending and the age of the newest run: `failed, 3 min ago`.
pub(crate) fn last_run(node: &NodeSummary, now: Timestamp) -> String {
    match &node.last_run {
        None => "none".to_owned(),
        Some(last) => format!("{}, {} ago", ending(last), ago(last.at, now)),
    }
}

pub(crate) fn ending(last: &LastRun) -> String {
    let word = last.ending.as_str().replace('_', " ");
    match last.mode {
        RunMode::Noop => format!("{word}, noop"),
        RunMode::Enforce => word,
    }
}

/// Describes what failed in a run, and the drift that it found.
pub(crate) fn details(last: &LastRun) -> Vec<String> {
    failure(last).into_iter().chain(drift(last)).collect()
}

/// Describes the reason why a run failed.
fn failure(last: &LastRun) -> Option<String> {
    if !last.is_failure() {
        return None;
    }
    let Some(failed) = &last.failure else {
        return Some(match &last.message {
            Some(message) => first_line(message),
            None => format!(
                "the last run ended as {}",
                last.ending.as_str().replace('_', " ")
            ),
        });
    };
    let more = match last.counts.failed {
        0 | 1 => String::new(),
        failed => format!(" and {} more", failed - 1),
    };
    let message = failed.message.as_deref().map(first_line);
    let message = message.unwrap_or_else(|| "failed".to_owned());
    Some(format!("{}{more}: {message}", failed.resource))
}

/// Describes drift that the run found.
fn drift(last: &LastRun) -> Option<String> {
    let resources = count(last.counts.corrective, "resource");
    match (last.counts.corrective, last.mode) {
        (0, _) => None,
        (_, RunMode::Enforce) => Some(format!("drift corrected in {resources}")),
        (_, RunMode::Noop) => Some(format!("drift in {resources}")),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Describes unusual conditions of a node in a few words.
pub(crate) fn note(node: &NodeSummary) -> String {
    let mut notes = Vec::new();
    if let Connection::Lost { reason, .. } = &node.status.connection {
        notes.push(reason.clone());
    }
    if let Administration::Disabled { reason, by, .. } = &node.status.administration {
        notes.push(format!("disabled by {by}: {reason}"));
    }
    if let Activity::Running { what, .. } = &node.status.activity {
        notes.push(what.clone());
    }
    notes.extend(node.last_run.iter().flat_map(details));
    match node.pending_commands {
        0 => {}
        1 => notes.push("1 command pending".to_owned()),
        count => notes.push(format!("{count} commands pending")),
    }
    notes.join("; ")
}

/// Returns the catalog and mode of a queued run.
pub(crate) fn describe_entry(entry: &QueueEntry) -> String {
    let subject = match &entry.subject {
        RunSubject::Released => "released catalog".to_owned(),
        RunSubject::Catalog {
            release, catalog, ..
        } => {
            format!("release {release}, catalog {}", catalog.0.short())
        }
        RunSubject::Configured {
            planned: Some(planned),
            ..
        } => format!("as planned, {planned}"),
        RunSubject::Configured {
            environment: None, ..
        } => "as configured".to_owned(),
        RunSubject::Configured {
            environment: Some(environment),
            ..
        } => format!("as configured, in {environment}"),
    };
    match entry.mode {
        Some(RunMode::Noop) => format!("{subject}, noop"),
        _ => subject,
    }
}

/// Describes the causes in a few words.
pub(crate) fn causes(causes: &[Cause], more: u64) -> String {
    let mut words: Vec<String> = causes.iter().map(cause).collect();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

fn cause(cause: &Cause) -> String {
    match cause {
        Cause::Schedule => "schedule".to_owned(),
        Cause::Release { release } => format!("release {release}"),
        Cause::Operator { name, reason: None } => name.clone(),
        Cause::Operator {
            name,
            reason: Some(reason),
        } => format!("{name} ({reason})"),
        Cause::Run { run } => format!("run {}", crate::run_view::short(*run)),
        Cause::Trigger(trigger) => format!("trigger {}", trigger.name),
    }
}
