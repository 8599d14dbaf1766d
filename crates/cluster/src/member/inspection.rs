//! Collects the elected server's view of the cluster before a decision.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bunraku_wire::api::cluster::{DatastoreRecord, MemberRecord, MemberState};
use futures::future::join_all;
use jiff::Timestamp;
use tokio::time::Instant;

use super::documents::Documents;
use super::gossip::{PeerStates, time_of};
use super::{Shared, now};
use crate::datastore::{AdminError, DatastoreStatus, ListedMember};
use crate::failover::{Datastore, FailoverInput, Liveness, Server};

/// A datastore that takes longer to report its status is not healthy.
const LONGEST_PATIENCE: Duration = Duration::from_secs(2);

/// The status that each datastore reported, by its address; `None` if it did not answer.
type Answers = BTreeMap<String, Option<DatastoreStatus>>;

/// The time since when each datastore fails, as this server saw it. The clock is
/// monotonic: changing the time of day must not change the duration.
pub(super) type FailingSince = BTreeMap<u64, Instant>;

pub(super) struct Inspection {
    pub(super) seen: FailoverInput,
    pub(super) records: Vec<DatastoreRecord>,
}

/// The time limit for a datastore to report its status. A look must not take as
/// long as the time for which this server is elected.
fn query_timeout(shared: &Shared) -> Duration {
    (shared.options.leader_ttl / 2).min(LONGEST_PATIENCE)
}

/// Asks all known datastores in parallel, once each: one that hangs costs only its timeout.
pub(super) async fn inspect(
    shared: &Shared,
    documents: &Documents,
    failing: &mut FailingSince,
) -> Result<Inspection, AdminError> {
    let admin = shared.admin();
    let ask = async |url: String| {
        let standing = tokio::time::timeout(query_timeout(shared), admin.status(&url)).await;
        (url, standing.ok().and_then(Result::ok))
    };
    let known: BTreeSet<String> = if documents.datastores.is_empty() {
        shared.endpoints().into_iter().collect()
    } else {
        documents
            .datastores
            .iter()
            .map(|one| one.client_url.clone())
            .collect()
    };
    let answers: Answers = join_all(known.into_iter().map(&ask))
        .await
        .into_iter()
        .collect();
    let listed = admin.list_at(best(&answers)?).await?;
    let asked = listed.iter().map(|member| {
        let record = record_of(documents, member);
        let url = member
            .client_url
            .clone()
            .or_else(|| record.map(|record| record.client_url.clone()));
        let (answers, ask) = (&answers, &ask);
        async move {
            let standing = match &url {
                None => None,
                Some(url) => match answers.get(url) {
                    Some(known) => *known,
                    None => ask(url.clone()).await.1,
                },
            };
            DatastoreRecord {
                id: member.id,
                name: record.map(|record| record.name.clone()),
                client_url: url.unwrap_or_default(),
                peer_url: member.peer_url.clone(),
                learner: member.learner,
                healthy: standing.is_some_and(|standing| standing.has_leader),
            }
        }
    });
    let records = join_all(asked).await;
    remember_failing(&records, failing);
    let seen = FailoverInput {
        wanted: documents.settings.as_ref().map_or(1, |it| it.datastores),
        servers: documents
            .members
            .iter()
            .map(|record| server(shared, documents, record))
            .collect(),
        datastores: records
            .iter()
            .map(|record| Datastore {
                id: record.id,
                peer_url: record.peer_url.clone(),
                learner: record.learner,
                healthy: record.healthy,
                failing_since: failing.get(&record.id).map(|since| time_of(*since)),
            })
            .collect(),
    };
    Ok(Inspection { seen, records })
}

/// Returns the leading datastore, or one that has a leader.
fn best(answers: &Answers) -> Result<&str, AdminError> {
    let led = answers.iter().filter_map(|(url, standing)| {
        let standing = standing.filter(DatastoreStatus::is_led)?;
        Some((standing.leads, url.as_str()))
    });
    let best = led.max_by_key(|(leads, _)| *leads);
    best.map(|(_, url)| url).ok_or(AdminError::Unavailable)
}

fn remember_failing(records: &[DatastoreRecord], failing: &mut FailingSince) {
    failing.retain(|id, _| {
        records
            .iter()
            .any(|record| record.id == *id && !record.healthy)
    });
    for record in records.iter().filter(|record| !record.healthy) {
        failing.entry(record.id).or_insert_with(Instant::now);
    }
}

fn record_of<'a>(documents: &'a Documents, member: &ListedMember) -> Option<&'a MemberRecord> {
    let own = |record: &&MemberRecord| record.peer_url == member.peer_url;
    documents.members.iter().find(own)
}

fn server(shared: &Shared, documents: &Documents, record: &MemberRecord) -> Server {
    let sights = shared.sights.borrow();
    let (state, since) = if record.name == *shared.name() {
        (Liveness::Alive, time_of(sights.begun))
    } else {
        member_liveness(&sights, record)
    };
    Server {
        name: record.name.clone(),
        state,
        since,
        eligible: record.eligible,
        draining: record.draining,
        peer_url: record.peer_url.clone(),
        ordered: documents
            .orders
            .get(&record.name)
            .map(|order| order.id.unwrap_or_default()),
        restart: documents
            .orders
            .get(&record.name)
            .map_or(0, |order| order.restart),
        programs: documents
            .programs
            .get(&record.name)
            .cloned()
            .unwrap_or_default(),
    }
}

/// Returns the state of another server, and since when.
fn member_liveness(sights: &PeerStates, record: &MemberRecord) -> (Liveness, Timestamp) {
    let Some(seen) = sights.members.get(&record.name) else {
        // Never heard of since this server started, or since the other one joined.
        let joined = record.joined.min(now());
        return (Liveness::Dead, joined.max(time_of(sights.begun)));
    };
    (liveness(seen.state), time_of(seen.since))
}

fn liveness(state: MemberState) -> Liveness {
    match state {
        MemberState::Alive => Liveness::Alive,
        MemberState::Suspect => Liveness::Suspect,
        MemberState::Dead => Liveness::Dead,
        MemberState::Left => Liveness::Left,
    }
}
