//! `bunraku node queue`.

use bunraku_model::NodeName;
use bunraku_wire::Client;
use bunraku_wire::api::{Cause, NodeQueue, QueueEntry, RunMode, RunSubject};
use jiff::Timestamp;

use crate::connection::failed;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, ago};

pub(crate) async fn show(client: &Client, node: &NodeName, json: bool) -> Result<Exit, Failure> {
    let queue: NodeQueue = client
        .get(&format!("/v1/nodes/{node}/queue"))
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&queue)?;
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    if queue.queue.running.is_none() && queue.queue.pending.is_empty() {
        eprintln!(
            "nothing runs and nothing waits, as of {} ago",
            ago(queue.received, now)
        );
    } else {
        table(&queue, now).print()?;
    }
    if queue.queue.more_pending > 0 {
        eprintln!("and {} more", queue.queue.more_pending);
    }
    if let Some(run) = queue.queue.held_by {
        eprintln!("run {run} has the node for itself: other runs wait for its end");
    }
    if queue.waiting_commands > 0 {
        eprintln!(
            "{} commands wait on the server for the node",
            queue.waiting_commands
        );
    }
    Ok(Exit::Done)
}

fn table(queue: &NodeQueue, now: Timestamp) -> Table {
    let mut table = Table::new(&["RUN", "STATE", "SINCE", "WHAT", "CAUSES"]);
    let running = queue.queue.running.iter();
    for entry in running.chain(&queue.queue.pending) {
        let (state, since) = match entry.started {
            Some(started) => ("running", started),
            None => ("waiting", entry.queued),
        };
        table.row(vec![
            entry.run.to_string(),
            state.to_owned(),
            ago(since, now),
            what(entry),
            causes(&entry.causes, entry.more_causes),
        ]);
    }
    table
}

pub(crate) fn what(entry: &QueueEntry) -> String {
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

/// Why, in a few words.
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
