//! Audit records of what the elected server does to the datastores.
//!
//! A change of etcd's members is not a transaction of the store, so its record has two parts. An
//! intent ([`keys::STEP`]) is stored before the step. The transaction that announces the step
//! replaces the intent by the record. If the server dies in between, the next elected one records
//! the step with the outcome `unknown`.
//!
//! Absent here: the chain. The servers link records to it, wherever they come from.

use std::collections::BTreeMap;

use bunraku_model::NodeName;
use bunraku_store::{Compare, Transaction};
use bunraku_wire::api::cluster::keys;
use bunraku_wire::api::{AuditEntry, AuditOutcome, AuditSource};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::documents::encode;
use crate::failover::{Action, ChangeReason, DatastoreChange, DatastorePlan};

/// Returns the record of something that a server does without a request.
pub(super) fn record(server: &NodeName, now: Timestamp, action: &str) -> AuditEntry {
    AuditEntry {
        id: Uuid::now_v7(),
        at: now,
        who: server.to_string(),
        role: "server".to_owned(),
        certificate: None,
        address: None,
        source: AuditSource::Server,
        client: None,
        action: action.to_owned(),
        object: None,
        details: BTreeMap::new(),
        reason: None,
        outcome: AuditOutcome::Succeeded,
        status: None,
        message: None,
        count: 1,
        request_id: None,
        server: server.to_string(),
        checkpoint: None,
    }
}

/// Adds a record to the transaction that makes the change.
pub(super) fn with_record(transaction: Transaction, record: &AuditEntry) -> Transaction {
    transaction.put(keys::audit_record(record.id), encode(record))
}

fn on(mut record: AuditEntry, server: &str) -> AuditEntry {
    record.object = Some(format!("server/{server}"));
    record
}

fn detail(record: &mut AuditEntry, name: &str, value: impl Into<Value>) {
    record.details.insert(name.to_owned(), value.into());
}

/// Returns the intent of a step. `name_of` names the members of etcd.
pub(super) fn step(
    by: &NodeName,
    now: Timestamp,
    action: &Action,
    plan: &DatastorePlan,
    name_of: impl Fn(u64) -> String,
) -> AuditEntry {
    let (word, server) = match action {
        Action::Remove { id } => ("remove-datastore", name_of(*id)),
        Action::Promote { id } => ("promote-datastore", name_of(*id)),
        Action::AddLearner { server } => ("add-datastore", server.to_string()),
        Action::Start { server, .. } => ("start-datastore", server.to_string()),
        Action::Restart { server, .. } => ("restart-datastore", server.to_string()),
        Action::Retire { server } => ("retire-datastore", server.to_string()),
    };
    let mut step = on(record(by, now, word), &server);
    step.outcome = AuditOutcome::Unknown;
    if let Some(change) = &plan.current {
        detail(&mut step, "change", change.number);
        step.reason = Some(reason(change.reason).to_owned());
    }
    step
}

/// Returns true if both are the same step of the same server.
pub(super) fn is_same_step(one: &AuditEntry, other: &AuditEntry) -> bool {
    let parts = |step: &AuditEntry| {
        let AuditEntry {
            who,
            action,
            object,
            details,
            ..
        } = step.clone();
        (who, action, object, details)
    };
    parts(one) == parts(other)
}

/// The intent of a step, as it is stored.
#[derive(Clone)]
pub(super) struct StoredStep {
    pub(super) entry: AuditEntry,
    pub(super) value: Bytes,
}

impl StoredStep {
    pub(super) fn new(entry: AuditEntry) -> Self {
        let value = encode(&entry).into();
        Self { entry, value }
    }

    /// Writes the record, if the intent is still there. The caller deletes or replaces the intent.
    pub(super) fn conclude(&self, transaction: Transaction, outcome: AuditOutcome) -> Transaction {
        let mut record = self.entry.clone();
        record.outcome = outcome;
        if outcome == AuditOutcome::Unknown {
            let message = "the elected server stopped, or etcd did not say how it ended";
            record.message = Some(message.to_owned());
        }
        let compare = Compare::Value(keys::STEP.to_owned(), self.value.clone());
        with_record(transaction.when(compare), &record)
    }
}

/// Returns the record of a change that begins or ends.
pub(super) fn plan(
    by: &NodeName,
    now: Timestamp,
    before: &DatastorePlan,
    after: &DatastorePlan,
) -> Option<AuditEntry> {
    let (word, change) = match (&before.current, &after.current) {
        (_, Some(change)) => ("begin-datastore-change", change),
        (Some(change), None) if after.ended.len() > before.ended.len() => {
            ("complete-datastore-change", change)
        }
        (Some(change), None) => ("abandon-datastore-change", change),
        (None, None) => return None,
    };
    let DatastoreChange {
        number,
        reason: why,
        out,
        into,
        program,
        ..
    } = change;
    let mut record = on(record(by, now, word), into.as_str());
    record.reason = Some(reason(*why).to_owned());
    detail(&mut record, "change", *number);
    if let Some(out) = out {
        detail(&mut record, "in_place_of", out.name.as_str());
    }
    if let Some(program) = program {
        detail(&mut record, "etcd", program.version().to_string());
    }
    Some(record)
}

/// Returns the record of the first datastore of an epoch.
pub(super) fn first_datastore(by: &NodeName, now: Timestamp, epoch: u64) -> AuditEntry {
    let word = match epoch {
        0 | 1 => "create-datastores",
        _ => "recover-datastores",
    };
    let mut record = on(record(by, now, word), by.as_str());
    detail(&mut record, "epoch", epoch);
    record
}

/// Describes the reason for a change.
pub(super) fn reason(reason: ChangeReason) -> &'static str {
    match reason {
        ChangeReason::Dead => "its server is dead",
        ChangeReason::Drain => "its server is drained",
        ChangeReason::Grow => "more datastores are needed",
        ChangeReason::Upgrade => "another version of etcd is installed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).expect("a name")
    }

    fn change(reason: ChangeReason) -> DatastorePlan {
        DatastorePlan {
            number: 3,
            current: Some(DatastoreChange {
                number: 3,
                reason,
                out: Some(crate::failover::OutgoingMember {
                    id: 7,
                    name: name("s2"),
                }),
                into: name("s4"),
                program: None,
                started: Timestamp::UNIX_EPOCH,
            }),
            ..DatastorePlan::default()
        }
    }

    fn words(record: &AuditEntry) -> String {
        let details = serde_json::to_string(&record.details).expect("JSON");
        let object = record.object.as_deref().unwrap_or("-");
        let reason = record.reason.as_deref().unwrap_or("-");
        format!(
            "{} {} {object} {details} {reason}",
            record.who, record.action
        )
    }

    #[test]
    fn a_change_is_recorded_when_it_begins_and_when_it_ends() {
        let (none, begun) = (DatastorePlan::default(), change(ChangeReason::Dead));
        let at = Timestamp::UNIX_EPOCH;
        let first = plan(&name("s1"), at, &none, &begun).expect("a record");
        assert_eq!(
            words(&first),
            r#"s1 begin-datastore-change server/s4 {"change":3,"in_place_of":"s2"} its server is dead"#
        );
        let done = DatastorePlan {
            current: None,
            ended: vec![at],
            ..begun.clone()
        };
        let last = plan(&name("s1"), at, &begun, &done).expect("a record");
        assert_eq!(last.action, "complete-datastore-change");
        let gone = DatastorePlan {
            current: None,
            ..begun.clone()
        };
        let last = plan(&name("s1"), at, &begun, &gone).expect("a record");
        assert_eq!(last.action, "abandon-datastore-change");
        assert_eq!(plan(&name("s1"), at, &none, &none), None);
    }

    #[test]
    fn a_step_that_is_tried_again_is_the_same_one_unless_another_server_does_it() {
        let plan = change(ChangeReason::Dead);
        let make = |by: &str, action: &Action| {
            step(&name(by), Timestamp::UNIX_EPOCH, action, &plan, |id| {
                format!("s{id}")
            })
        };
        let promote = Action::Promote { id: 4 };
        let first = make("s1", &promote);
        assert_eq!(
            words(&first),
            r#"s1 promote-datastore server/s4 {"change":3} its server is dead"#
        );
        assert!(is_same_step(&first, &make("s1", &promote)));
        assert!(!is_same_step(&first, &make("s3", &promote)));
        assert!(!is_same_step(
            &first,
            &make("s1", &Action::Remove { id: 4 })
        ));
    }
}
