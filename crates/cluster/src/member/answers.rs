//! A member's answers to questions from other members and from its own operator.

use std::sync::Arc;

use bunraku_model::NodeName;
use futures::FutureExt;
use tokio::sync::mpsc;

use super::{Member, Shared, locked, view};
use crate::recover;
use crate::transport::{AnswerHandler, DatastoreReport, PeerAnswer, PeerQuestion};

/// Creates the answerer. It holds a weak reference, because the listener must not
/// keep the member alive.
pub(super) fn answerer(shared: &Arc<Shared>) -> AnswerHandler {
    let weak = Arc::downgrade(shared);
    Arc::new(move |from, epoch, question| {
        let weak = weak.clone();
        async move {
            match weak.upgrade() {
                Some(shared) => answer(&shared, &from, epoch, question).await,
                None => refuse("this member is shutting down"),
            }
        }
        .boxed()
    })
}

fn refuse(why: impl Into<String>) -> PeerAnswer {
    PeerAnswer::Refused { why: why.into() }
}

async fn answer(
    shared: &Arc<Shared>,
    from: &NodeName,
    epoch: u64,
    question: PeerQuestion,
) -> PeerAnswer {
    match question {
        PeerQuestion::Datastore => PeerAnswer::Datastore(report(shared).await),
        PeerQuestion::Sight => PeerAnswer::Sight(
            Member {
                shared: Arc::clone(shared),
            }
            .view(),
        ),
        PeerQuestion::Recover { epoch } => {
            tracing::warn!(%from, epoch, "recovery requested: restarting with this server's data");
            match begin_epoch(shared, epoch).await {
                Ok(endpoint) => {
                    shared.begin_anew("the cluster was recovered from this server");
                    PeerAnswer::Done {
                        endpoint: Some(endpoint),
                    }
                }
                Err(why) => refuse(why),
            }
        }
        PeerQuestion::Fence {
            epoch: newer,
            endpoints,
        } => {
            let _ = epoch;
            match fence(shared, newer, endpoints) {
                Ok(()) => PeerAnswer::Done { endpoint: None },
                Err(why) => refuse(why),
            }
        }
    }
}

async fn report(shared: &Shared) -> DatastoreReport {
    let ordered = shared.orders.borrow().is_some();
    let own = &shared.me.record.client_url;
    let admin = shared.admin();
    let mut progress = None;
    let mut voters = Vec::new();
    if ordered {
        let (itself, copy) = tokio::join!(view::own_progress(shared), view::progress(shared));
        if itself.is_none() && copy.is_some() {
            return DatastoreReport {
                name: shared.name().clone(),
                epoch: *shared.epoch.borrow(),
                ordered,
                progress: copy,
                voters: last_voters(shared),
            };
        }
        progress = itself;
        let listed = admin.list_at(own).await.unwrap_or_default();
        voters = listed
            .into_iter()
            .filter(|member| !member.learner)
            .map(|member| member.peer_url)
            .collect();
    }
    DatastoreReport {
        name: shared.name().clone(),
        epoch: *shared.epoch.borrow(),
        ordered,
        progress,
        voters,
    }
}

/// The datastores that had a vote when this server last heard of it.
fn last_voters(shared: &Shared) -> Vec<String> {
    let known = shared.known();
    let members = known.members.into_iter();
    let voters = members.filter(|member| known.endpoints.contains(&member.client_url));
    voters.map(|member| member.peer_url).collect()
}

async fn begin_epoch(shared: &Arc<Shared>, epoch: u64) -> Result<String, String> {
    let own = *shared.epoch.borrow();
    if epoch <= own {
        return Err(format!("this member is already in epoch {own}"));
    }
    if shared.orders.borrow().is_none() {
        return Err("this server stores no data".to_owned());
    }
    let admin = shared.admin();
    let own = locked(&shared.view).clone();
    let own = own.unwrap_or_else(|| shared.me.record.client_url.clone());
    recover::from_own_data(
        &shared.directory,
        &shared.me,
        &shared.program,
        (&admin, &own),
        epoch,
    )
    .await
    .map_err(|error| bunraku_model::error_chain(&error))?;
    shared.epoch.send_replace(epoch);
    Ok(shared.me.record.client_url.clone())
}

/// Marks the data here as outdated. It is set aside when this process restarts.
fn fence(shared: &Shared, epoch: u64, endpoints: Vec<String>) -> Result<(), String> {
    let own = *shared.epoch.borrow();
    if epoch <= own {
        return Err(format!("this member is already in epoch {own}"));
    }
    let fenced = || -> Result<(), crate::directory::DirectoryError> {
        let mut counters = shared.directory.counters()?;
        let mut known = shared.known();
        known.endpoints = endpoints;
        shared.directory.write_order(None)?;
        shared.directory.write_known_peers(&known)?;
        counters.epoch = epoch;
        shared.directory.write_counters(&counters)?;
        *locked(&shared.known) = known;
        Ok(())
    };
    fenced().map_err(|error| error.to_string())?;
    shared.epoch.send_replace(epoch);
    shared.orders.send_replace(None);
    shared.begin_anew("the cluster was recovered from another server");
    Ok(())
}

/// Handles messages from members of a later epoch: the data here is then outdated.
pub(super) async fn heed_epochs(shared: &Shared, mut epochs: mpsc::Receiver<u64>) {
    while let Some(epoch) = epochs.recv().await {
        if epoch > *shared.epoch.borrow()
            && let Err(why) = fence(shared, epoch, Vec::new())
        {
            tracing::error!(why, epoch, "cannot set aside old data");
        }
    }
}
