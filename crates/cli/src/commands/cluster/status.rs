//! `bunraku cluster status`.

use bunraku_cluster::directory::Directory;
use bunraku_cluster::operator::Operator;
use bunraku_wire::api::cluster::{ClusterStatus, ClusterView};
use bunraku_wire::endpoints::ShowCluster;
use jiff::Timestamp;

use crate::cluster_view::{
    hints, is_whole, last_observation, role, space_line, state_name, summary,
};
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, ago};

pub(crate) fn run(context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    let asked = context.with_client(|client| async move {
        let status: ClusterStatus = client
            .call(ShowCluster)
            .await
            .map_err(|error| failed(&error))?;
        if json {
            output::json(&status)?;
        } else {
            show(&status)?;
        }
        Ok(if is_whole(&status) {
            Exit::Done
        } else {
            Exit::SomeNodesFailed
        })
    });
    match asked {
        Err(failure) => without_store(context).unwrap_or(Err(failure)),
        answered => answered,
    }
}

fn show(status: &ClusterStatus) -> Result<(), Failure> {
    let now = Timestamp::now();
    let summary = summary(status);
    output::write(&format!(
        "cluster {}  {}  {summary}\n\n",
        status.settings.cluster,
        output::count(status.members.len(), "server"),
    ))?;
    let mut table = Table::new(&[
        "SERVER",
        "STATE",
        "SINCE",
        "REPORTED BY",
        "DATASTORE",
        "ADDRESS",
    ]);
    for member in &status.members {
        let seen = last_observation(status, member);
        let role = role(status, member);
        table.row(vec![
            member.name.to_string(),
            seen.map_or("unknown", |seen| state_name(seen.state))
                .to_owned(),
            seen.map_or_else(|| "-".to_owned(), |seen| ago(seen.since, now)),
            seen.map_or_else(|| "-".to_owned(), |seen| seen.said_by.to_string()),
            role.word().to_owned(),
            member.api_address.clone(),
        ]);
    }
    table.print()?;
    let elected = status.leader.as_ref();
    let elected = elected.map_or_else(|| "no server".to_owned(), ToString::to_string);
    output::write(&format!(
        "\nseen by {}; managed by {elected}\n",
        status.sight.seen_by
    ))?;
    if let Some(line) = status.space.as_ref().and_then(space_line) {
        output::write(&format!("{line}\n"))?;
    }
    if let Some(waiting) = &status.sight.waiting {
        output::write(&format!("waiting: {waiting}\n"))?;
    }
    for hint in hints(status) {
        note!("{hint}");
    }
    for event in status.events.iter().rev().take(5).rev() {
        output::write(&format!(
            "  {}  {}\n",
            event.at.round(jiff::Unit::Second)?,
            event.what
        ))?;
    }
    Ok(())
}

/// The view of the local member, for a server whose store does not answer.
fn without_store(context: &Context) -> Option<Result<Exit, Failure>> {
    let directory = Directory::of(&context.loaded.file.server.data_dir);
    let operator = Operator::of(&directory).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let sight = runtime.block_on(operator.view()).ok()??;
    Some(show_sight(&sight, context.global.json))
}

fn show_sight(sight: &ClusterView, json: bool) -> Result<Exit, Failure> {
    if json {
        output::json(sight)?;
        return Ok(Exit::SomeNodesFailed);
    }
    note!(
        "warning: the store does not answer; this is the view of {}",
        sight.seen_by
    );
    let now = Timestamp::now();
    let mut table = Table::new(&["SERVER", "STATE", "SINCE", "REPORTED BY"]);
    for seen in &sight.members {
        table.row(vec![
            seen.name.to_string(),
            state_name(seen.state).to_owned(),
            ago(seen.since, now),
            seen.said_by.to_string(),
        ]);
    }
    table.print()?;
    Ok(Exit::SomeNodesFailed)
}
