//! `bunraku node queue`.

use bunraku_model::NodeName;
use bunraku_wire::Client;
use bunraku_wire::api::NodeQueue;
use bunraku_wire::endpoints::{Endpoint, ShowNodeQueue};
use jiff::Timestamp;

use crate::connection::failed;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_view::{causes, describe_entry};
use crate::output::{self, Table, ago};

pub(crate) async fn show(client: &Client, node: &NodeName, json: bool) -> Result<Exit, Failure> {
    let queue: NodeQueue = client
        .call(ShowNodeQueue.at(node))
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&queue)?;
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    if queue.queue.running.is_none() && queue.queue.pending.is_empty() {
        note!(
            "nothing is running or waiting, as of {} ago",
            ago(queue.received, now)
        );
    } else {
        table(&queue, now).print()?;
    }
    if queue.queue.more_pending > 0 {
        note!("and {} more", queue.queue.more_pending);
    }
    if let Some(run) = queue.queue.held_by {
        note!("run {run} holds the node: other runs wait until it ends");
    }
    if queue.waiting_commands > 0 {
        note!(
            "{} pending on the server",
            output::count(queue.waiting_commands, "command")
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
            describe_entry(entry),
            causes(&entry.causes, entry.more_causes),
        ]);
    }
    table
}
