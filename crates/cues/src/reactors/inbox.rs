//! Events, recorded in the transaction in which they happen.
//!
//! Reports, presence and facts add the events that some rule may match to their
//! own transactions, and nothing else: an event is either not stored at all, or
//! is processed, whenever a server dies. It is removed in the transaction that
//! fires the resulting triggers (`react.rs`).
//!
//! The rules are followed from the store: each server records the events that
//! match the rules it has seen so far.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bunraku_model::{EnvironmentName, FactSetId, NodeName, NodeRunId};
use bunraku_store::{Change, Follow, FollowEvent, KeyValue, SharedStore, Transaction};
use bunraku_wire::api::ordered_runs::{RunEnd, RunRecord};
use bunraku_wire::api::reactors::{Reactor, ReactorEvent, ReactorEventKind};
use bunraku_wire::api::{ReleaseKind, ReleaseSummary, ReportEvent, RunStarted, TriggerCause};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::matching;
use bunraku_control::node_events::{NodeEventRecorder, NodeLoss, RunEvents};
use bunraku_control::{ServiceError, document, keys};

/// The most events in one entry.
const PER_ENTRY: usize = 100;
/// The most causes that an ordered run passes on.
const MOST_CAUSES: usize = 50;
/// The number of characters of a message that are kept.
const MESSAGE_KEPT: usize = 2_000;

/// One entry.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<NodeName>,
    /// The run in which it happened: its causes are passed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<NodeRunId>,
    /// The environment, for hooks; for other events it is looked up by the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) environment: Option<EnvironmentName>,
    /// The node's new facts: the changes are looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fact_set: Option<FactSetId>,
    /// The time at which the node was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost_since: Option<Timestamp>,
    /// The causes to pass on, if the event is not one of a node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) causes: Vec<TriggerCause>,
    /// `true` if the ordered run that ended had changed something.
    #[serde(default)]
    pub(super) changed: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) happenings: Vec<ReactorEvent>,
    /// The last rule that was processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<String>,
    /// The only rule that this entry is for, after its wait has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) only: Option<String>,
}

type Rules = BTreeMap<EnvironmentName, Arc<Vec<Reactor>>>;

/// The handle for other services.
#[derive(Clone, Default)]
pub struct ReactorInbox {
    rules: Arc<RwLock<Rules>>,
}

impl ReactorInbox {
    /// Loads the current rules: events after this are not missed.
    pub async fn open(store: &SharedStore) -> Result<Self, ServiceError> {
        let inbox = Self::default();
        for entry in document::read_all(&**store, keys::ENVIRONMENTS).await? {
            note(&mut inbox.write(), &Change::Put(entry));
        }
        Ok(inbox)
    }

    /// Follows the rules forever.
    pub(super) async fn follow(&self, store: SharedStore) {
        let mut environments = Follow::new(store, keys::ENVIRONMENTS);
        loop {
            match environments.next().await {
                Ok(FollowEvent::Snapshot { items, .. }) => {
                    let mut rules = Rules::new();
                    for item in items {
                        note(&mut rules, &Change::Put(item));
                    }
                    // In one step, because events arrive concurrently.
                    *self.write() = rules;
                }
                Ok(FollowEvent::Changes(batch)) => {
                    let mut rules = self.write();
                    (batch.changes.iter()).for_each(|change| note(&mut rules, change));
                }
                Err(error) => {
                    tracing::warn!(error = %error, "cannot watch the reactors; retrying");
                    tokio::time::sleep(super::RETRY).await;
                }
            }
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Rules> {
        self.rules.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all rules, by environment.
    pub(super) fn all(&self) -> Rules {
        self.rules
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn of(&self, environment: &EnvironmentName) -> Arc<Vec<Reactor>> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.get(environment).cloned().unwrap_or_default()
    }

    fn any(&self, wanted: impl Fn(&Reactor) -> bool) -> bool {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.values().any(|rules| rules.iter().any(&wanted))
    }

    /// Returns whether a rule of any environment may match this event.
    fn matches_any_rule(&self, happening: &ReactorEvent) -> bool {
        self.any(|rule| matching::mismatch(rule, happening).is_none())
    }

    /// Records that a node's facts have changed.
    pub fn facts(
        &self,
        transaction: Transaction,
        node: &NodeName,
        fact_set: FactSetId,
    ) -> Transaction {
        if !self.any(|rule| rule.event == ReactorEventKind::FactChanged) {
            return transaction;
        }
        let entry = Entry {
            node: Some(node.clone()),
            fact_set: Some(fact_set),
            ..Entry::default()
        };
        put(transaction, &entry)
    }

    /// Records the end of an ordered run. `changed` is the number of resources that it changed.
    pub fn run_finished(
        &self,
        transaction: Transaction,
        record: &RunRecord,
        end: &RunEnd,
        changed: u64,
    ) -> Transaction {
        let Ok(environment) = EnvironmentName::new(record.environment.clone()) else {
            return transaction;
        };
        let happening = ReactorEvent {
            event: ReactorEventKind::RunFinished,
            node: None,
            fields: fields(json!({
                "run": record.id,
                "outcome": end.outcome,
                "by": record.by,
                "reason": record.reason.clone().unwrap_or_default(),
                "nodes": record.nodes,
                "failed": end.tally.finished() - end.tally.succeeded,
                "changed": changed,
            })),
        };
        let causes = record.causes.iter().take(MOST_CAUSES).cloned().collect();
        self.put_if_matched(transaction, environment, happening, causes, changed > 0)
    }

    /// Records that a release was created.
    pub fn release_made(&self, transaction: Transaction, release: &ReleaseSummary) -> Transaction {
        let kind = match &release.kind {
            ReleaseKind::Created(_) => "created",
            ReleaseKind::Auto => "auto",
            ReleaseKind::Added { .. } => "added",
            ReleaseKind::Rollback { .. } => "rollback",
        };
        let happening = ReactorEvent {
            event: ReactorEventKind::ReleaseMade,
            node: None,
            fields: fields(json!({
                "release": release.number,
                "kind": kind,
                "by": release.by,
                "reason": release.reason.clone().unwrap_or_default(),
                "nodes": release.nodes,
                "changed": release.changed,
                "code_id": release.code_id,
            })),
        };
        let environment = release.environment.clone();
        self.put_if_matched(transaction, environment, happening, Vec::new(), true)
    }

    /// Adds an event of an environment, if one of its rules may match it.
    fn put_if_matched(
        &self,
        transaction: Transaction,
        environment: EnvironmentName,
        happening: ReactorEvent,
        causes: Vec<TriggerCause>,
        changed: bool,
    ) -> Transaction {
        let rules = self.of(&environment);
        if !(rules.iter()).any(|rule| matching::mismatch(rule, &happening).is_none()) {
            return transaction;
        }
        let entry = Entry {
            environment: Some(environment),
            causes,
            changed,
            happenings: vec![happening],
            ..Entry::default()
        };
        put(transaction, &entry)
    }
}

impl NodeEventRecorder for ReactorInbox {
    fn node_joined(&self, transaction: Transaction, node: &NodeName) -> Transaction {
        let happening = ReactorEvent {
            event: ReactorEventKind::NodeJoined,
            node: Some(node.clone()),
            fields: Map::new(),
        };
        if !self.matches_any_rule(&happening) {
            return transaction;
        }
        let entry = Entry {
            node: Some(node.clone()),
            happenings: vec![happening],
            ..Entry::default()
        };
        put(transaction, &entry)
    }

    fn report_events(&self, transaction: Transaction, new: &RunEvents<'_>) -> Transaction {
        let RunEvents {
            node,
            run,
            started,
            events,
        } = *new;
        let about_runs = |rule: &Reactor| {
            matches!(
                rule.event,
                ReactorEventKind::Resource | ReactorEventKind::Run
            )
        };
        if !self.any(about_runs) {
            return transaction;
        }
        let happenings: Vec<ReactorEvent> = events
            .iter()
            .filter_map(|event| of_report(node, started, &event.event))
            .filter(|happening| self.matches_any_rule(happening))
            .collect();
        happenings
            .chunks(PER_ENTRY)
            .fold(transaction, |transaction, happenings| {
                let entry = Entry {
                    node: Some(node.clone()),
                    run: Some(run),
                    happenings: happenings.to_vec(),
                    ..Entry::default()
                };
                put(transaction, &entry)
            })
    }

    fn node_lost(&self, transaction: Transaction, loss: &NodeLoss<'_>) -> Transaction {
        let NodeLoss {
            node,
            since,
            reason,
        } = *loss;
        let happening = ReactorEvent {
            event: ReactorEventKind::NodeLost,
            node: Some(node.clone()),
            fields: fields(json!({ "reason": reason })),
        };
        if !self.matches_any_rule(&happening) {
            return transaction;
        }
        let entry = Entry {
            node: Some(node.clone()),
            lost_since: Some(since),
            happenings: vec![happening],
            ..Entry::default()
        };
        put(transaction, &entry)
    }
}

/// Updates the rules from one key of an environment.
fn note(rules: &mut Rules, change: &Change) {
    let (key, entry) = match change {
        Change::Put(entry) => (&entry.key, Some(entry)),
        Change::Delete { key } => (key, None),
    };
    let Some((environment, "reactors")) = keys::parse_environment_key(key) else {
        return;
    };
    match entry.map(document::decode::<Vec<Reactor>>) {
        Some(Ok(own)) => {
            rules.insert(environment, Arc::new(own));
        }
        Some(Err(error)) => tracing::error!(error = %error, "cannot read the reactors"),
        None => {
            rules.remove(&environment);
        }
    }
}

pub(super) fn put(transaction: Transaction, entry: &Entry) -> Transaction {
    transaction.put(keys::reactor_event(Uuid::now_v7()), document::encode(entry))
}

/// Decodes an entry. Logs an unreadable one and returns `None`.
pub(super) fn read(entry: &KeyValue) -> Option<Entry> {
    document::decode(entry)
        .inspect_err(|error| tracing::error!(error = %error, "ignoring an event"))
        .ok()
}

fn of_report(node: &NodeName, started: &RunStarted, event: &ReportEvent) -> Option<ReactorEvent> {
    let (event, fields) = match event {
        ReportEvent::Resource(resource) => {
            let message = resource.message.as_ref();
            let message = message.map(|text| text.chars().take(MESSAGE_KEPT).collect::<String>());
            let said = json!({
                "type": resource.type_name,
                "title": resource.title,
                "status": resource.status,
                "corrective": resource.corrective,
                "message": message.unwrap_or_default(),
            });
            (ReactorEventKind::Resource, fields(said))
        }
        ReportEvent::Finished(finished) => {
            let said = json!({
                "ending": finished.ending,
                "changed": finished.changed,
                "failed": finished.failed,
                "method": started.method,
            });
            (ReactorEventKind::Run, fields(said))
        }
        _ => return None,
    };
    Some(ReactorEvent {
        event,
        node: Some(node.clone()),
        fields,
    })
}

pub(super) fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
