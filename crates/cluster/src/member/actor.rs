//! The elected server: looks, decides, does the next step, looks again.
//!
//! The elected server is the one that holds a key bound to a lease. Every write is
//! conditional on holding that key, so a server that was paused and woke up too
//! late changes nothing in the store. etcd itself also refuses to remove a member
//! when too few of the others run.

use std::sync::Arc;
use std::time::Duration;

use bunraku_store::etcd::EtcdStore;
use bunraku_store::{
    Compare, LeaseId, Store, StoreError, Transaction, TransactionOutcome, WatchStart,
};
use bunraku_wire::api::AuditOutcome;
use bunraku_wire::api::cluster::{ClusterEvent, keys};
use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;

use super::documents::{Documents, encode};
use super::inspection::{FailingSince, Inspection, inspect};
use super::records::StoredStep;
use super::{Shared, locked, now, records};
use crate::datastore::{AdminError, ClusterState, DatastoreOrder};
use crate::failover::{
    self, Action, ChangeReason, DatastoreChange, DatastorePlan, NextStep, WaitReason,
};

/// After an action, the next look follows almost immediately.
const SOON: Duration = Duration::from_millis(100);
/// The number of events to keep.
const EVENTS: usize = 100;

#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error("the store failed")]
    Store(#[from] StoreError),
    #[error("cannot inspect or change the datastores")]
    Admin(#[from] AdminError),
    #[error("another server was elected")]
    NotElected,
}

pub(super) async fn run(shared: Arc<Shared>, store: EtcdStore) {
    loop {
        let asked = Instant::now();
        match elect(&shared, &store).await {
            Ok(Some(lease)) => {
                tracing::info!("this server was elected to manage the datastores");
                let term = Term {
                    ttl: shared.options.leader_ttl,
                    renewed: watch::Sender::new(asked),
                };
                let error = lead(&shared, &store, lease, &term).await;
                tracing::info!(why = %bunraku_model::error_chain(&error), "this server is no longer elected");
                *locked(&shared.waiting) = None;
                let _ = store.lease_revoke(lease).await;
            }
            Ok(None) => wait_for_vacancy(&shared, &store).await,
            Err(error) => {
                tracing::debug!(error = %error, "cannot hold an election now");
                tokio::time::sleep(shared.options.check_interval).await;
            }
        }
    }
}

fn elected_condition(shared: &Shared) -> Compare {
    Compare::Value(
        keys::LEADER.to_owned(),
        shared.name().to_string().into_bytes().into(),
    )
}

async fn elect(shared: &Shared, store: &EtcdStore) -> Result<Option<LeaseId>, StoreError> {
    if store.get(keys::LEADER).await?.is_some() {
        return Ok(None);
    }
    let lease = store.lease_grant(shared.options.leader_ttl).await?;
    let transaction = Transaction::new()
        .when(Compare::Absent(keys::LEADER.to_owned()))
        .put_with_lease(keys::LEADER, shared.name().to_string(), lease);
    match store.commit(transaction).await {
        Ok(TransactionOutcome::Committed(_)) => Ok(Some(lease)),
        lost => {
            let _ = store.lease_revoke(lease).await;
            lost.map(|_| None)
        }
    }
}

async fn wait_for_vacancy(shared: &Shared, store: &EtcdStore) {
    let change = async {
        let mut changes = store.watch(keys::LEADER, WatchStart::Now).await.ok()?;
        changes.next().await
    };
    // A change between the look and the watch is seen at the next look.
    let _ = tokio::time::timeout(shared.options.leader_ttl, change).await;
}

/// Manages the datastores for as long as this server is elected. Renewing the
/// election does not wait for a look: a look that hangs must not cost the election.
async fn lead(shared: &Shared, store: &EtcdStore, lease: LeaseId, term: &Term) -> TurnError {
    tokio::select! {
        error = term.stay_elected(store, lease) => error,
        error = manage_datastores(shared, store, term) => error,
    }
}

/// The time for which this server is elected.
struct Term {
    ttl: Duration,
    /// The time at which the lease, or its newest renewal, was requested.
    renewed: watch::Sender<Instant>,
}

impl Term {
    /// Renews the lease. Returns the reason why the term ended.
    async fn stay_elected(&self, store: &dyn Store, lease: LeaseId) -> TurnError {
        loop {
            tokio::time::sleep(self.ttl / 4).await;
            let asked = Instant::now();
            match store.lease_keep_alive(lease).await {
                Ok(()) => drop(self.renewed.send_replace(asked)),
                Err(error @ StoreError::LeaseNotFound(_)) => return error.into(),
                Err(error) if self.is_over() => return error.into(),
                Err(error) => {
                    tracing::debug!(error = %error, "cannot renew the election; retrying soon");
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.renewed.borrow().elapsed() > self.ttl
    }

    /// Returns true if the server may still act. A server that was paused must not
    /// act on what it saw before the pause, nor when another one may be elected by
    /// now.
    fn allows(&self, looked: Instant) -> bool {
        looked.elapsed() < self.ttl && self.renewed.borrow().elapsed() < self.ttl / 2
    }
}

async fn manage_datastores(shared: &Shared, store: &EtcdStore, term: &Term) -> TurnError {
    let mut failing = FailingSince::new();
    let mut sights = shared.sights.clone();
    loop {
        let busy = match turn(shared, store, &mut failing, term).await {
            Ok(busy) => busy,
            Err(TurnError::NotElected) => return TurnError::NotElected,
            Err(error) => {
                tracing::debug!(why = %bunraku_model::error_chain(&error), "cannot check the datastores; retrying soon");
                false
            }
        };
        let wait = if busy {
            SOON
        } else {
            shared.options.check_interval.min(term.ttl / 4)
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = sights.changed() => tokio::time::sleep(SOON).await,
        }
    }
}

/// Looks once and does the next step. Returns true if there may be more to do at once.
async fn turn(
    shared: &Shared,
    store: &EtcdStore,
    failing: &mut FailingSince,
    term: &Term,
) -> Result<bool, TurnError> {
    let documents = Documents::read(store).await?;
    if !documents.are_of(*shared.epoch.borrow()) {
        return Ok(true);
    }
    let looked = Instant::now();
    let look = inspect(shared, &documents, failing).await?;
    publish(shared, store, &documents, &look).await?;
    let next = failover::next(&documents.plan, &look.seen, &shared.options.limits, now());
    if !term.allows(looked) {
        return Ok(true);
    }
    if documents.step.is_some() && !matches!(next, NextStep::Act(_)) {
        // Its server died, or etcd did not say how it ended.
        let change = conclude_former(documents.step.as_ref()).delete(keys::STEP);
        commit(shared, store, change).await?;
    }
    match next {
        NextStep::Wait(waiting) => {
            note_waiting(shared, store, &waiting).await?;
            Ok(matches!(waiting, WaitReason::Starting(_)))
        }
        NextStep::Store(plan) => {
            store_plan(shared, store, &documents, &plan).await?;
            Ok(true)
        }
        NextStep::Act(action) => {
            step(shared, store, &documents, &look, &action).await?;
            Ok(true)
        }
    }
}

/// Performs an action, and records it.
async fn step(
    shared: &Shared,
    store: &EtcdStore,
    documents: &Documents,
    look: &Inspection,
    action: &Action,
) -> Result<(), TurnError> {
    let name_of = |id| member_name(look, id);
    let intent = records::step(shared.name(), now(), action, &documents.plan, name_of);
    let intent = match &documents.step {
        Some(known) if records::is_same_step(&known.entry, &intent) => known.clone(),
        known => {
            let intent = StoredStep::new(intent);
            let change = conclude_former(known.as_ref()).put(keys::STEP, intent.value.clone());
            if !commit(shared, store, change).await? {
                return Ok(());
            }
            intent
        }
    };
    if perform(shared, store, documents, look, action).await? {
        let record = intent
            .conclude(Transaction::new(), AuditOutcome::Succeeded)
            .delete(keys::STEP);
        announce(shared, store, describe(action, look), record).await?;
    }
    Ok(())
}

/// Records a step whose outcome nobody learned.
fn conclude_former(known: Option<&StoredStep>) -> Transaction {
    let transaction = Transaction::new();
    match known {
        Some(known) => known.conclude(transaction, AuditOutcome::Unknown),
        None => transaction.when(Compare::Absent(keys::STEP.to_owned())),
    }
}

/// Returns the server of a member of etcd, or the member's id.
fn member_name(look: &Inspection, id: u64) -> String {
    let known = look.records.iter().find(|one| one.id == id);
    let name = known.and_then(|one| one.name.as_ref());
    name.map_or_else(|| format!("{id:x}"), ToString::to_string)
}

/// Commits the transaction. Returns false if the store has changed since it was read.
async fn commit(shared: &Shared, store: &EtcdStore, what: Transaction) -> Result<bool, TurnError> {
    match store.commit(what.when(elected_condition(shared))).await? {
        TransactionOutcome::Committed(_) => Ok(true),
        TransactionOutcome::Refused(_) => match store.get(keys::LEADER).await? {
            Some(entry) if entry.value == shared.name().as_str().as_bytes() => Ok(false),
            _ => Err(TurnError::NotElected),
        },
    }
}

async fn publish(
    shared: &Shared,
    store: &EtcdStore,
    documents: &Documents,
    look: &Inspection,
) -> Result<(), TurnError> {
    if documents.datastores == look.records {
        return Ok(());
    }
    let change = Transaction::new().put(keys::DATASTORES, encode(&look.records));
    commit(shared, store, change).await.map(drop)
}

async fn store_plan(
    shared: &Shared,
    store: &EtcdStore,
    documents: &Documents,
    plan: &DatastorePlan,
) -> Result<(), TurnError> {
    let mut change = Transaction::new()
        .when_unchanged(keys::PLAN, documents.plan_entry.as_ref())
        .put(keys::PLAN, encode(plan));
    if let Some(record) = records::plan(shared.name(), now(), &documents.plan, plan) {
        change = records::with_record(change, &record);
    }
    if commit(shared, store, change).await? {
        let text = describe_plan(plan, documents);
        announce(shared, store, text, Transaction::new()).await
    } else {
        Ok(())
    }
}

fn describe_plan(plan: &DatastorePlan, documents: &Documents) -> String {
    let etcd = |change: &DatastoreChange| {
        let program = change.program.as_ref();
        program.map_or_else(String::new, |program| format!("etcd {}", program.version()))
    };
    match (&plan.current, &documents.plan.current) {
        (Some(change), _) if change.reason == ChangeReason::Upgrade => format!(
            "planned: restart the datastore of {} with {}",
            change.into,
            etcd(change)
        ),
        (Some(change), _) => {
            let out = change.out.as_ref();
            let out = out.map_or_else(String::new, |out| format!(" in place of {}", out.name));
            format!(
                "planned: {} becomes a datastore{out} ({})",
                change.into,
                records::reason(change.reason)
            )
        }
        (None, Some(change)) if plan.refused.len() > documents.plan.refused.len() => format!(
            "abandoned: the datastore of {} did not start with {}; the others keep their version",
            change.into,
            etcd(change)
        ),
        (None, Some(change))
            if change.reason == ChangeReason::Upgrade
                && plan.ended.len() > documents.plan.ended.len() =>
        {
            format!(
                "done: the datastore of {} runs {}",
                change.into,
                etcd(change)
            )
        }
        (None, Some(_)) if plan.ended.len() > documents.plan.ended.len() => {
            "done: the datastores are complete".to_owned()
        }
        (None, _) => {
            "abandoned: the change is no longer needed, or no server is eligible".to_owned()
        }
    }
}

async fn perform(
    shared: &Shared,
    store: &EtcdStore,
    documents: &Documents,
    look: &Inspection,
    action: &Action,
) -> Result<bool, TurnError> {
    let admin = shared.admin();
    let healthy = look
        .records
        .iter()
        .filter(|one| one.healthy && !one.learner);
    let endpoints: Vec<String> = healthy.map(|one| one.client_url.clone()).collect();
    match action {
        Action::Remove { id } => admin.remove(&endpoints, *id).await?,
        Action::Promote { id } => admin.promote(&endpoints, *id).await?,
        Action::AddLearner { server } => {
            let record = documents.members.iter().find(|it| it.name == *server);
            if let Some(record) = record {
                admin.add_learner(&endpoints, &record.peer_url).await?;
            }
        }
        Action::Start { server, id } => {
            let names = look.records.iter();
            let initial_cluster =
                names.filter_map(|one| Some((one.name.clone()?, one.peer_url.clone())));
            let epoch = *shared.epoch.borrow();
            let order = DatastoreOrder {
                generation: uuid::Uuid::new_v4().to_string(),
                id: Some(*id),
                epoch,
                initial_cluster: initial_cluster.collect(),
                state: ClusterState::Existing,
                token: format!("{}-{epoch}", shared.me.cluster),
                restart: 0,
            };
            let change = documents.with_order(server, Some(&order));
            return commit(shared, store, change).await;
        }
        Action::Restart { server, number } => {
            if let Some(order) = documents.orders.get(server) {
                let order = DatastoreOrder {
                    restart: *number,
                    ..order.clone()
                };
                let change = documents.with_order(server, Some(&order));
                return commit(shared, store, change).await;
            }
        }
        Action::Retire { server } => {
            let change = documents.with_order(server, None);
            return commit(shared, store, change).await;
        }
    }
    Ok(true)
}

fn describe(action: &Action, look: &Inspection) -> String {
    let name = |id: &u64| member_name(look, *id);
    match action {
        Action::Remove { id } => format!("{} removed from the datastores", name(id)),
        Action::Promote { id } => format!("{} caught up and became a voter", name(id)),
        Action::AddLearner { server } => format!("{server} joined as a learner"),
        Action::Start { server, .. } => format!("{server}: datastore start requested"),
        Action::Restart { server, .. } => {
            format!("{server}: datastore restart requested")
        }
        Action::Retire { server } => format!("{server}: datastore removed"),
    }
}

async fn note_waiting(
    shared: &Shared,
    store: &EtcdStore,
    waiting: &WaitReason,
) -> Result<(), TurnError> {
    // A condition that clears within a moment is not worth a log line.
    let passing = matches!(
        waiting,
        WaitReason::Content | WaitReason::Pause | WaitReason::Starting(_)
    );
    let text = (!passing).then(|| waiting.to_string());
    let changed = {
        let mut known = locked(&shared.waiting);
        let changed = *known != text;
        known.clone_from(&text);
        changed
    };
    match text {
        Some(text) if changed => {
            let text = format!("waiting: {text}");
            announce(shared, store, text, Transaction::new()).await
        }
        _ => Ok(()),
    }
}

/// Adds an event to the list, together with other changes.
async fn announce(
    shared: &Shared,
    store: &EtcdStore,
    what: String,
    with: Transaction,
) -> Result<(), TurnError> {
    tracing::info!(what, "datastores");
    let entry = store.get(keys::EVENTS).await?;
    let mut events: Vec<ClusterEvent> = entry
        .as_ref()
        .and_then(|entry| serde_json::from_slice(&entry.value).ok())
        .unwrap_or_default();
    events.push(ClusterEvent {
        at: now(),
        by: shared.name().clone(),
        what,
    });
    let extra = events.len().saturating_sub(EVENTS);
    events.drain(..extra);
    let change = with
        .when_unchanged(keys::EVENTS, entry.as_ref())
        .put(keys::EVENTS, encode(&events));
    commit(shared, store, change).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn what_was_seen_long_ago_or_under_an_old_renewal_is_not_acted_on() {
        let term = Term {
            ttl: TTL,
            renewed: watch::Sender::new(Instant::now()),
        };
        let looked = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(term.allows(looked));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!term.allows(Instant::now()), "another may be elected soon");
        term.renewed.send_replace(Instant::now());
        assert!(term.allows(looked));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!term.allows(looked), "it was paused since it looked");
        assert!(term.allows(Instant::now()));
        assert!(!term.is_over());
        tokio::time::advance(TTL).await;
        assert!(term.is_over());
    }
}
