//! Invariants of the audit log.
//!
//! - A change that was made is in the log, whatever happened to the server that made it.
//! - A change that a client saw succeed is in the log as succeeded.
//! - No action is in the log twice, unless its outcome became known late.
//! - A record in a change's own transaction is in the log exactly as often as the change happened.
//! - The chain is intact.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bunraku_control::{AuditAction, ServiceError};
use bunraku_model::{AuditChainCheck, AuditChainPlace, EnvironmentName};
use bunraku_server::Services;
use bunraku_store::{Compare, Range, Store, Transaction, settle};
use bunraku_wire::api::{AuditOutcome, AuditRecord, ReleaseKind};
use uuid::Uuid;

use crate::Bug;

/// The changes that had an intent, by the id of their record.
const INTENDED: &str = "sim/intended/";
/// The changes with a record in their own transaction, by number.
const RECORDED: &str = "sim/recorded/";

#[derive(Default, Debug)]
struct Notes {
    /// Changes whose success a client saw.
    acknowledged: BTreeSet<Uuid>,
    asked: u64,
}

/// The handle; clones write to the same notes.
#[derive(Clone, Default, Debug)]
pub struct AuditChecker(Arc<Mutex<Notes>>);

impl AuditChecker {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the next change.
    pub(crate) fn next(&self) -> u64 {
        let mut notes = self.notes();
        notes.asked += 1;
        notes.asked
    }

    /// Returns the number of changes that clients saw succeed.
    pub fn acknowledgements(&self) -> usize {
        self.notes().acknowledged.len()
    }

    pub(crate) fn acknowledge(&self, change: Uuid) {
        self.notes().acknowledged.insert(change);
    }

    /// Checks the log against what happened. Everything that waited has been linked.
    pub(crate) async fn check(
        &self,
        store: &dyn Store,
        services: &Services,
        environment: &EnvironmentName,
    ) {
        let records = intact(services).await;
        let mut outcomes: BTreeMap<Uuid, Vec<AuditOutcome>> = BTreeMap::new();
        let mut recorded: BTreeMap<String, usize> = BTreeMap::new();
        let mut released: BTreeMap<u64, usize> = BTreeMap::new();
        for AuditRecord { entry, .. } in records {
            match entry.action.as_str() {
                "intended" => outcomes.entry(entry.id).or_default().push(entry.outcome),
                "recorded" => {
                    let object = entry.object.expect("it has an object");
                    *recorded.entry(object).or_default() += 1;
                }
                "create-release" => {
                    let number = entry.details["release"].as_u64().expect("a number");
                    *released.entry(number).or_default() += 1;
                }
                _ => {}
            }
        }
        for id in made(store, INTENDED).await {
            let id = Uuid::parse_str(&id).expect("an id");
            assert!(outcomes.contains_key(&id), "change {id} is not in the log");
        }
        for id in &self.notes().acknowledged {
            let known = outcomes.get(id);
            let known = known.unwrap_or_else(|| panic!("acknowledged {id} is not in the log"));
            assert!(known.contains(&AuditOutcome::Succeeded), "{id}: {known:?}");
        }
        for (id, outcomes) in &outcomes {
            use AuditOutcome::{Succeeded, Unknown};
            let is_fine = matches!(outcomes[..], [Succeeded] | [Unknown] | [Unknown, Succeeded]);
            assert!(is_fine, "{id}: {outcomes:?}");
        }
        let changes = made(store, RECORDED).await;
        let changes = changes
            .into_iter()
            .map(|number| (format!("change/{number}"), 1));
        assert_eq!(recorded, changes.collect(), "one record per change");
        let list = services.releases.list(environment).await;
        let list = list.expect("memory answers").releases.into_iter();
        let automatic = list.filter(|release| release.kind == ReleaseKind::Auto);
        let automatic = automatic.map(|release| (release.number.0, 1));
        assert_eq!(released, automatic.collect(), "one record per release");
    }
}

/// Returns all records of an intact log.
async fn intact(services: &Services) -> Vec<AuditRecord> {
    let mut lines = services.audit.lines_after(0).await.expect("memory answers");
    let mut check = AuditChainCheck::default();
    let mut records = Vec::new();
    while let Some(some) = lines.next().await.expect("memory answers") {
        for line in some {
            check.add(&line).expect("an intact chain");
            records.push(serde_json::from_slice(&line).expect("a record"));
        }
    }
    let head = services.audit.head().await.expect("memory answers");
    let head = AuditChainPlace {
        number: head.number,
        hash: head.hash,
    };
    check.finish(Some(&head)).expect("an intact log");
    records
}

async fn made(store: &dyn Store, prefix: &str) -> Vec<String> {
    let page = store.range(Range::prefix(prefix)).await;
    let items = page.expect("memory answers").items.into_iter();
    items
        .map(|item| item.key[prefix.len()..].to_owned())
        .collect()
}

/// Makes a change as a handler does: an intent, the change, its outcome. Returns the id of its
/// record if it succeeded.
pub(crate) async fn intended_change(services: &Services) -> Option<Uuid> {
    let begun = services
        .audit
        .begin(AuditAction::new("intended"))
        .await
        .ok()?;
    let id = begun.id();
    let change = Transaction::new().put(format!("{INTENDED}{id}"), "made");
    settle(&*services.store, change).await.ok()?;
    let finished = begun.finish(AuditOutcome::Succeeded).await;
    finished.ok().map(|()| id)
}

/// Makes a change as a service does: with its record in one transaction.
pub(crate) async fn recorded_change(
    services: &Services,
    number: u64,
    bug: Option<Bug>,
) -> Result<(), ServiceError> {
    let key = format!("{RECORDED}{number}");
    let change = Transaction::new()
        .when(Compare::Absent(key.clone()))
        .put(key, "made");
    let action = AuditAction::new("recorded").on("change", number);
    if bug == Some(Bug::RecordedTooLate) {
        if settle(&*services.store, change).await?.is_committed() {
            let recorded = services.audit.record(action, AuditOutcome::Succeeded);
            recorded.await?;
        }
        return Ok(());
    }
    let change = services.audit.record_in(change, action);
    settle(&*services.store, change).await?;
    Ok(())
}
