//! `bunraku cluster status`.

use bunraku_cluster::directory::Directory;
use bunraku_cluster::operator::Operator;
use bunraku_wire::api::cluster::{
    ClusterSight, ClusterStatus, MemberRecord, MemberSeen, MemberState,
};
use jiff::Timestamp;

use super::super::Context;
use crate::connection::failed;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, ago};

pub(crate) fn run(context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    let asked = context.with_client(|client| async move {
        let status: ClusterStatus = client
            .get("/v1/cluster")
            .await
            .map_err(|error| failed(&error))?;
        match json {
            true => output::json(&status)?,
            false => show(&status)?,
        }
        Ok(match is_whole(&status) {
            true => Exit::Done,
            false => Exit::SomeNodesFailed,
        })
    });
    match asked {
        Err(failure) => without_store(context).unwrap_or(Err(failure)),
        answered => answered,
    }
}

pub(crate) fn is_whole(status: &ClusterStatus) -> bool {
    let alive = |seen: &MemberSeen| seen.state == MemberState::Alive;
    status.without_majority_seconds.is_none()
        && status.sight.members.iter().all(alive)
        && status.datastores.iter().all(|it| it.healthy)
}

pub(crate) fn word(state: MemberState) -> &'static str {
    match state {
        MemberState::Alive => "alive",
        MemberState::Suspect => "suspect",
        MemberState::Dead => "dead",
        MemberState::Left => "left",
    }
}

/// How the datastores are, in one line.
pub(crate) fn summary(status: &ClusterStatus) -> String {
    let voters = status.datastores.iter().filter(|it| !it.learner).count();
    let healthy = status
        .datastores
        .iter()
        .filter(|it| it.healthy && !it.learner);
    let (healthy, majority) = (healthy.count(), voters / 2 + 1);
    match status.without_majority_seconds {
        Some(seconds) => format!(
            "NO MAJORITY of {voters} datastores for {seconds} s: nothing can be changed, looking still works"
        ),
        None => format!(
            "{healthy} of {voters} datastores healthy, {} may be lost",
            healthy.saturating_sub(majority)
        ),
    }
}

/// What a server is to the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataRole {
    /// It keeps data, and does not answer.
    Away,
    CatchingUp,
    /// It keeps data until another one does.
    Draining,
    Healthy,
    Drained,
    Eligible,
    Never,
}

impl DataRole {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Away => "does not answer",
            Self::CatchingUp => "catching up",
            Self::Draining => "draining",
            Self::Healthy => "healthy",
            Self::Drained => "drained",
            Self::Eligible => "eligible",
            Self::Never => "never",
        }
    }
}

pub(crate) fn role(status: &ClusterStatus, member: &MemberRecord) -> DataRole {
    let datastore = status
        .datastores
        .iter()
        .find(|it| it.name.as_ref() == Some(&member.name));
    match datastore {
        Some(_) if is_away(status, seen(status, member)) => DataRole::Away,
        Some(it) if it.learner => DataRole::CatchingUp,
        Some(it) if !it.healthy => DataRole::Away,
        Some(_) if member.draining => DataRole::Draining,
        Some(_) => DataRole::Healthy,
        None if member.draining => DataRole::Drained,
        None if member.eligible => DataRole::Eligible,
        None => DataRole::Never,
    }
}

/// What is known of whether a server is there.
pub(crate) fn seen<'a>(status: &'a ClusterStatus, member: &MemberRecord) -> Option<&'a MemberSeen> {
    let mut members = status.sight.members.iter();
    members.find(|it| it.name == member.name)
}

/// What somebody should do about it.
pub(crate) fn hints(status: &ClusterStatus) -> Vec<String> {
    let mut hints = Vec::new();
    if status.sight.health_score > 0 {
        hints.push(format!(
            "warning: {} itself gets too little CPU (score {})",
            status.sight.seen_by, status.sight.health_score
        ));
    }
    if status.without_majority_seconds.is_some() {
        hints.push("hint: start the machines of the datastores again; only if they are gone for good: `bunraku cluster recover`".to_owned());
    }
    if status.leader.is_none() {
        hints.push(
            "warning: nobody looks after the datastores at the moment; how they do may be old news"
                .to_owned(),
        );
    }
    if status.members.len() == 2 {
        hints.push("warning: two servers keep the data on one; a third makes it safe".to_owned());
    }
    hints
}

fn show(status: &ClusterStatus) -> Result<(), Failure> {
    let now = Timestamp::now();
    let summary = summary(status);
    output::write(&format!(
        "cluster {}  {} servers  {summary}\n\n",
        status.settings.cluster,
        status.members.len(),
    ))?;
    let mut table = Table::new(&[
        "SERVER",
        "STATE",
        "SINCE",
        "SAID BY",
        "DATASTORE",
        "ADDRESS",
    ]);
    for member in &status.members {
        let seen = seen(status, member);
        let role = role(status, member);
        table.row(vec![
            member.name.to_string(),
            seen.map_or("unknown", |seen| word(seen.state)).to_owned(),
            seen.map_or_else(|| "-".to_owned(), |seen| ago(seen.since, now)),
            seen.map_or_else(|| "-".to_owned(), |seen| seen.said_by.to_string()),
            role.word().to_owned(),
            member.api_address.clone(),
        ]);
    }
    table.print()?;
    let elected = status.leader.as_ref();
    let elected = elected.map_or_else(|| "nobody".to_owned(), ToString::to_string);
    output::write(&format!(
        "\nseen by {}; looked after by {elected}\n",
        status.sight.seen_by
    ))?;
    if let Some(waiting) = &status.sight.waiting {
        output::write(&format!("waits: {waiting}\n"))?;
    }
    for hint in hints(status) {
        eprintln!("{hint}");
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

/// Without a majority nobody writes down who answers: what this server sees counts.
fn is_away(status: &ClusterStatus, seen: Option<&MemberSeen>) -> bool {
    let away = |seen: &MemberSeen| !matches!(seen.state, MemberState::Alive | MemberState::Suspect);
    status.without_majority_seconds.is_some() && seen.is_none_or(away)
}

/// On a server whose store does not answer: what its member sees, all the same.
fn without_store(context: &Context) -> Option<Result<Exit, Failure>> {
    let directory = Directory::of(&context.loaded.file.server.data_dir);
    let operator = Operator::of(&directory).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let sight = runtime.block_on(operator.sight()).ok()??;
    Some(show_sight(&sight, context.global.json))
}

fn show_sight(sight: &ClusterSight, json: bool) -> Result<Exit, Failure> {
    if json {
        output::json(sight)?;
        return Ok(Exit::SomeNodesFailed);
    }
    eprintln!(
        "warning: the store does not answer; this is what {} sees of the others",
        sight.seen_by
    );
    let now = Timestamp::now();
    let mut table = Table::new(&["SERVER", "STATE", "SINCE", "SAID BY"]);
    for seen in &sight.members {
        table.row(vec![
            seen.name.to_string(),
            word(seen.state).to_owned(),
            ago(seen.since, now),
            seen.said_by.to_string(),
        ]);
    }
    table.print()?;
    Ok(Exit::SomeNodesFailed)
}
