//! The audit log: every change and every refusal, in one hash-chained, append-only log.
//!
//! A record takes three steps, each a transaction:
//! 1. Before a change begins, its server writes an intent below [`keys::AUDIT_PENDING`].
//! 2. With the outcome, before the reply, the intent moves to [`keys::AUDIT_INBOX`]. Services
//!    whose change is one transaction put the record there in that transaction, without an intent.
//! 3. One elected server moves records from the inbox to the chain (`sequencer`), in the order in
//!    which they were committed.
//!
//! Invariants: a change whose server dies is in the log, with the outcome `unknown` if nobody
//! learned it; every action is in the chain once (twice only if a server that counted as dead
//! still reported the outcome); nobody changes a line of the chain.
//!
//! Absent here: which requests are recorded (the definitions of endpoints in `wire` say so) and
//! how lines are hashed (`model`).

mod action;
mod lines;
mod list;
mod origin;
mod refusals;
mod retention;
mod sequencer;
mod service;
mod stored;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::ServerId;
use bunraku_store::{Compare, Settled, SharedStore, StoreError, Transaction, settle};
use bunraku_wire::api::{AuditEntry, AuditOutcome};
use jiff::SignedDuration;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use action::AuditAction;
pub use lines::{AuditFollow, AuditLines};
pub use list::AuditFilter;
pub use origin::{AuditOrigin, with_origin};
pub use service::ServiceAudit;

use crate::clock::Clock;
use crate::{ServiceError, document, keys};
use refusals::RefusalLimiter;

/// The longest time that a refused caller waits for the record.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);
/// The pause before the outcome of an action is written again.
const RETRY: Duration = Duration::from_secs(1);

/// Retention, and the time after which another server links records.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// The age at which records are deleted.
    pub keep: SignedDuration,
    /// The silence after which another server takes over the chain.
    pub leader_ttl: Duration,
    /// The time over which repeated refusals of one caller are counted.
    pub refusal_window: SignedDuration,
    /// The interval between deletions of old records.
    pub upkeep_every: Duration,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            keep: SignedDuration::from_hours(24 * 400),
            leader_ttl: Duration::from_secs(10),
            refusal_window: SignedDuration::from_mins(5),
            upkeep_every: Duration::from_secs(600),
        }
    }
}

/// The handle on the audit log.
#[derive(Clone)]
pub struct AuditLog {
    store: SharedStore,
    clock: Clock,
    shared: Arc<Shared>,
}

struct Shared {
    server: ServerId,
    /// The name of this server, for records.
    name: String,
    options: AuditOptions,
    refusals: Mutex<RefusalLimiter>,
    /// Outcomes that are still to be written.
    open: TaskTracker,
}

/// The result of an action, as far as the log is concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditVerdict {
    pub outcome: AuditOutcome,
    pub status: Option<u16>,
    pub message: Option<String>,
}

impl From<AuditOutcome> for AuditVerdict {
    fn from(outcome: AuditOutcome) -> Self {
        Self {
            outcome,
            status: None,
            message: None,
        }
    }
}

impl AuditLog {
    pub fn new(
        store: SharedStore,
        clock: Clock,
        server: ServerId,
        name: &str,
        options: AuditOptions,
    ) -> Self {
        let refusals = RefusalLimiter::new(options.refusal_window);
        Self {
            store,
            clock,
            shared: Arc::new(Shared {
                server,
                name: name.to_owned(),
                options,
                refusals: Mutex::new(refusals),
                open: TaskTracker::new(),
            }),
        }
    }

    /// Returns the entry of an action of the current request, or of this server if there is none.
    pub fn entry(&self, action: AuditAction, verdict: AuditVerdict) -> AuditEntry {
        let origin = origin::current().unwrap_or_else(|| AuditOrigin::server(&self.shared.name));
        let mut entry = action.into_entry(origin, self.clock.now(), &self.shared.name);
        apply(&mut entry, verdict);
        entry
    }

    /// Adds the record of a change to the transaction that makes it.
    #[must_use]
    pub fn record_in(&self, transaction: Transaction, action: AuditAction) -> Transaction {
        let entry = self.entry(action, AuditOutcome::Succeeded.into());
        transaction.put(keys::audit_inbox(entry.id), document::encode(&entry))
    }

    /// Records an action that is over.
    pub async fn record(
        &self,
        action: AuditAction,
        verdict: impl Into<AuditVerdict>,
    ) -> Result<(), ServiceError> {
        self.put(&self.entry(action, verdict.into())).await
    }

    /// Records an action of a server that is over, or logs why that failed. For work that may
    /// not stop because the log cannot be written.
    pub async fn record_or_warn(&self, action: AuditAction, verdict: impl Into<AuditVerdict>) {
        let entry = self.entry(action, verdict.into());
        if let Err(error) = self.put(&entry).await {
            tracing::error!(error = %error, action = entry.action, "cannot write an audit record");
        }
    }

    /// Records a refused request. Many refusals of one caller become one record with a count, so
    /// that nobody can flood the log with them.
    pub async fn refuse(&self, action: AuditAction, verdict: AuditVerdict) {
        self.admit_refusal(self.entry(action, verdict)).await;
    }

    async fn admit_refusal(&self, entry: AuditEntry) {
        let now = self.clock.now();
        if self.store.without_majority_for().is_some() {
            // Nobody should wait for that. It is counted until it can be written.
            self.refusals().hold(entry, now);
            return;
        }
        let Some(entry) = self.refusals().admit(entry, now) else {
            return;
        };
        match tokio::time::timeout(REFUSAL_PATIENCE, self.put(&entry)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %error, action = entry.action, "cannot record a refusal yet");
                self.refusals().hold(entry, now);
            }
            Err(_) => tracing::warn!(action = entry.action, "recording a refusal takes too long"),
        }
    }

    /// Writes an intent. The change may begin when this returns, and only then.
    pub async fn begin(&self, action: AuditAction) -> Result<AuditedAction, ServiceError> {
        self.begin_with(action, false).await
    }

    /// Does the same for an action that deletes something. While the store is full, it may begin
    /// without an intent, because it makes room: then it is recorded as soon as there is some.
    pub async fn begin_deletion(&self, action: AuditAction) -> Result<AuditedAction, ServiceError> {
        self.begin_with(action, true).await
    }

    async fn begin_with(
        &self,
        action: AuditAction,
        is_deletion: bool,
    ) -> Result<AuditedAction, ServiceError> {
        let entry = self.entry(action, AuditOutcome::Unknown.into());
        let key = keys::audit_pending(self.shared.server, entry.id);
        let intent = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put(key, document::encode(&entry));
        match settle(&*self.store, intent).await {
            Err(StoreError::Full(_)) if is_deletion => {}
            settled => drop(settled?),
        }
        Ok(AuditedAction {
            log: self.clone(),
            entry: Some(entry),
        })
    }

    /// Waits for all outcomes of this server to be written, and writes the counts of refusals.
    pub async fn close(&self) {
        self.shared.open.close();
        self.shared.open.wait().await;
        self.write_refusals(None).await;
    }

    /// Writes the counts of refusals whose time is over; without a time, all of them.
    async fn write_refusals(&self, now: Option<jiff::Timestamp>) {
        let due = self.refusals().take_due(now);
        for mut entry in due {
            entry.id = Uuid::now_v7();
            if let Err(error) = self.put(&entry).await {
                tracing::warn!(error = %error, count = entry.count, "cannot record refusals");
            }
        }
    }

    fn refusals(&self) -> std::sync::MutexGuard<'_, RefusalLimiter> {
        (self.shared.refusals)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record without an intent. A copy of it may arrive late; the sequencer drops it.
    async fn put(&self, entry: &AuditEntry) -> Result<(), ServiceError> {
        let put = Transaction::new().put(keys::audit_inbox(entry.id), document::encode(entry));
        settle(&*self.store, put).await?;
        Ok(())
    }

    /// Writes the outcome of an action that had an intent.
    async fn conclude(&self, entry: &AuditEntry) -> Result<(), ServiceError> {
        let pending = keys::audit_pending(self.shared.server, entry.id);
        // An intent is written once. If it is gone, other servers counted this one as dead.
        let moved = Transaction::new()
            .when(Compare::Version(pending.clone(), 1))
            .delete(pending)
            .put(keys::audit_inbox(entry.id), document::encode(entry));
        match settle(&*self.store, moved).await? {
            Settled::Committed => Ok(()),
            Settled::Refused(_) if entry.outcome == AuditOutcome::Unknown => Ok(()),
            Settled::Refused(_) => {
                let late =
                    Transaction::new().put(keys::audit_inbox(entry.id), document::encode(entry));
                settle(&*self.store, late).await?;
                Ok(())
            }
        }
    }

    /// Deletes the intent of an action that changed nothing.
    async fn withdraw(&self, id: Uuid) -> Result<(), ServiceError> {
        let pending = keys::audit_pending(self.shared.server, id);
        settle(&*self.store, Transaction::new().delete(pending)).await?;
        Ok(())
    }

    /// Tries until the outcome is written. If this server stops first, another one finds the
    /// intent.
    async fn conclude_eventually(&self, entry: AuditEntry) {
        while let Err(error) = self.conclude(&entry).await {
            tracing::warn!(error = %error, action = entry.action, "cannot write the outcome of an action yet");
            if !matches!(error, ServiceError::Store(_)) {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// An action whose intent is stored. Dropping it means that its outcome is unknown.
#[must_use = "the outcome has to be recorded"]
pub struct AuditedAction {
    log: AuditLog,
    /// Taken when the outcome is recorded.
    entry: Option<AuditEntry>,
}

impl AuditedAction {
    /// The identity of the action.
    pub fn id(&self) -> Uuid {
        self.entry
            .as_ref()
            .map(|entry| entry.id)
            .unwrap_or_default()
    }

    /// Adds to the details.
    pub fn detail(&mut self, name: &str, value: impl Into<serde_json::Value>) {
        if let Some(entry) = &mut self.entry {
            action::add_detail(&mut entry.details, name, value.into());
        }
    }

    /// Records the outcome. If that fails now, the outcome is written later, and the caller must
    /// not acknowledge the action: this server may die before.
    pub async fn finish(mut self, verdict: impl Into<AuditVerdict>) -> Result<(), ServiceError> {
        let Some(mut entry) = self.entry.take() else {
            return Ok(());
        };
        apply(&mut entry, verdict.into());
        let log = self.log.clone();
        if entry.outcome == AuditOutcome::Refused {
            // Refusals are limited: written, or counted.
            let id = entry.id;
            let admitted = log.refusals().admit(entry, log.clock.now());
            match admitted {
                Some(entry) => log.conclude_or_later(entry).await,
                None => {
                    log.withdraw_or_warn(id).await;
                    Ok(())
                }
            }
        } else {
            log.conclude_or_later(entry).await
        }
    }

    /// Leaves the action out of the log, because it changed nothing.
    pub async fn nothing_changed(mut self) {
        if let Some(entry) = self.entry.take() {
            self.log.withdraw_or_warn(entry.id).await;
        }
    }
}

impl AuditLog {
    async fn conclude_or_later(&self, entry: AuditEntry) -> Result<(), ServiceError> {
        let Err(error) = self.conclude(&entry).await else {
            return Ok(());
        };
        tracing::warn!(error = %error, action = entry.action, "cannot write the outcome of an action yet");
        let log = self.clone();
        let later = async move { log.conclude_eventually(entry).await };
        self.shared.open.spawn(later);
        match error {
            // Only a deletion begins while the store is full, and it makes room.
            ServiceError::Store(StoreError::Full(_)) => Ok(()),
            error => Err(error),
        }
    }

    async fn withdraw_or_warn(&self, id: Uuid) {
        if let Err(error) = self.withdraw(id).await {
            // It stays, and another server records it as unknown.
            tracing::warn!(error = %error, "cannot delete the intent of an action");
        }
    }
}

impl Drop for AuditedAction {
    fn drop(&mut self) {
        let Some(mut entry) = self.entry.take() else {
            return;
        };
        entry.message = Some("the request ended before its outcome was known".to_owned());
        // Without a runtime, the process ends. The next server finds the intent.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let log = self.log.clone();
            let later = async move { log.conclude_eventually(entry).await };
            self.log.shared.open.spawn_on(later, &runtime);
        }
    }
}

fn apply(entry: &mut AuditEntry, verdict: AuditVerdict) {
    entry.outcome = verdict.outcome;
    entry.status = verdict.status;
    entry.message = verdict.message.map(|message| action::clipped(&message));
}
