//! Nodes and their queues as text, for tables and pages.

use bunraku_model::{Activity, Administration, Connection};
use bunraku_wire::api::{Cause, NodeSummary, QueueEntry, RunMode, RunSubject};
use jiff::Timestamp;

use crate::output::{Table, ago};

/// Returns the table of nodes.
pub(crate) fn table(nodes: Vec<NodeSummary>) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(&["NODE", "STATUS", "SINCE", "FACTS", "NOTE"]);
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
            facts,
            note,
        ]);
    }
    table
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
        RunSubject::Catalog { release, catalog } => {
            format!("release {release}, catalog {}", catalog.0.short())
        }
        RunSubject::Configured { environment: None } => "as configured".to_owned(),
        RunSubject::Configured {
            environment: Some(environment),
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
        Cause::Run { run } => format!("run {run}"),
        Cause::Trigger(trigger) => format!("trigger {}", trigger.name),
    }
}
