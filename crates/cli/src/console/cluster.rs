//! The cluster page.

use bunraku_console::{ClusterPage, EventLine, Section, ServerLine, Tone};
use bunraku_wire::api::cluster::{ClusterStatus, MemberRecord, MemberState};
use jiff::Timestamp;

use super::page::{PageError, Servers, Source, local, plain, tone_of};
use crate::cluster_view::{DataRole, hints, last_observation, role, state_name, summary};
use crate::output::ago;

pub(super) async fn page(source: &Source) -> Result<ClusterPage, PageError> {
    let servers = source.servers().await?;
    let frame = source.frame("Cluster", Section::Cluster, &servers);
    let Servers::Cluster(status) = servers else {
        let (summary, tone) = match servers {
            Servers::Hidden => ("You may not view the servers.", Tone::Quiet),
            _ => (
                "This is a single server. It stores all data itself.",
                Tone::Good,
            ),
        };
        return Ok(ClusterPage {
            frame,
            name: None,
            summary: summary.to_owned(),
            tone,
            servers: Vec::new(),
            seen_by: String::new(),
            elected: String::new(),
            waits: None,
            hints: Vec::new(),
            events: Vec::new(),
        });
    };
    let now = Timestamp::now();
    let elected = status.leader.as_ref();
    let events = status.events.iter().rev().map(|event| EventLine {
        at: local(event.at),
        by: event.by.to_string(),
        what: event.what.clone(),
    });
    Ok(ClusterPage {
        frame,
        name: Some(status.settings.cluster.clone()),
        summary: summary(&status),
        tone: tone_of(&status),
        servers: (status.members.iter())
            .map(|member| line(&status, member, now))
            .collect(),
        seen_by: status.sight.seen_by.to_string(),
        elected: elected.map_or_else(|| "none".to_owned(), ToString::to_string),
        waits: status.sight.waiting.clone(),
        hints: hints(&status).iter().map(|hint| plain(hint)).collect(),
        events: events.collect(),
    })
}

fn line(status: &ClusterStatus, member: &MemberRecord, now: Timestamp) -> ServerLine {
    let seen = last_observation(status, member);
    let datastore = role(status, member);
    ServerLine {
        name: member.name.to_string(),
        state: seen
            .map_or("unknown", |seen| state_name(seen.state))
            .to_owned(),
        tone: seen.map_or(Tone::Quiet, |seen| match seen.state {
            MemberState::Alive => Tone::Good,
            MemberState::Suspect => Tone::Warn,
            MemberState::Dead => Tone::Bad,
            MemberState::Left => Tone::Quiet,
        }),
        since: seen.map_or_else(String::new, |seen| ago(seen.since, now)),
        said_by: seen.map_or_else(String::new, |seen| seen.said_by.to_string()),
        datastore: datastore.word().to_owned(),
        datastore_tone: match datastore {
            DataRole::Healthy => Tone::Good,
            DataRole::CatchingUp | DataRole::Draining => Tone::Busy,
            DataRole::Away => Tone::Bad,
            DataRole::Drained | DataRole::Eligible | DataRole::None | DataRole::Never => {
                Tone::Quiet
            }
        },
        address: member.api_address.clone(),
    }
}
