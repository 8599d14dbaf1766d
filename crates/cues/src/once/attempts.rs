//! One attempt: claimed, kept alive, ended.
//!
//! Invariant: an attempt is `running` only while its claim's lease is alive.
//! Requests after the end of the lease are refused, even if another caller holds
//! the claim by then.

use std::sync::OnceLock;
use std::time::Duration;

use bunraku_model::AppName;
use bunraku_store::{LeaseId, StoreError, Swap, Transaction, WatchStart, compare_and_swap, settle};
use bunraku_wire::api::once::{
    AttemptOutcome, ClaimOnce, ClaimReply, FinishClaim, KeepClaim, OnceAttempt, OnceStatus,
};
use futures::StreamExt;

use super::definition::Definition;
use super::permitted::{self, OnceRole};
use super::record::Claim;
use super::{LEASES, Once, RecordSnapshot};
use crate::permission::CueCaller;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The number of bytes kept from the end of a log.
const LOG_KEPT: usize = 128 * 1024;

impl Once {
    /// Claims a task. The same claim again gets the same answer while it is alive.
    pub async fn claim(
        &self,
        app: &AppName,
        asker: CueCaller<'_>,
        request: &ClaimOnce,
    ) -> Result<ClaimReply, ServiceError> {
        let ttl = Duration::from_secs(request.lease_seconds);
        if !LEASES.contains(&ttl) {
            return Err(ServiceError::invalid(
                "lease_seconds must be between one second and a day",
            ));
        }
        // Granted only when needed: most callers find that there is nothing to do.
        let lease = OnceLock::new();
        let outcome = self.claim_with(app, asker, request, ttl, &lease).await;
        if let (Some(lease), false) = (lease.get(), granted(&outcome)) {
            self.revoke_lease(*lease).await;
        }
        outcome
    }

    async fn claim_with(
        &self,
        app: &AppName,
        asker: CueCaller<'_>,
        request: &ClaimOnce,
        ttl: Duration,
        lease: &OnceLock<LeaseId>,
    ) -> Result<ClaimReply, ServiceError> {
        compare_and_swap(&*self.store, |_| async move {
            let read = self.read(app).await?;
            if let Some(attempt) = own_running(&read, asker, request) {
                return grant(&read, attempt).map(Swap::Done);
            }
            let role = self.role(&read.record.parts, asker).await?;
            if role != OnceRole::Initialiser {
                return Err(permitted::may_not_init(app, asker));
            }
            let queried = self.queried(&read.record).await?;
            match read.record.status_for(asker, role, request.retry, &queried) {
                OnceStatus::Ready => {}
                standing => return Ok(Swap::Done(ClaimReply::Refused { standing })),
            }
            let lease = match lease.get() {
                Some(lease) => *lease,
                None => {
                    let granted = self.store.lease_grant(ttl).await?;
                    *lease.get_or_init(|| granted)
                }
            };
            let attempt = OnceAttempt {
                token: read.record.state.last_token.max(self.epoch.floor()) + 1,
                claim: request.claim,
                by: asker.name.to_string(),
                started: self.clock.now(),
                outcome: AttemptOutcome::Running,
            };
            let transaction = self.write_claim(app, &read, &attempt, lease);
            Ok(Swap::Write(transaction, grant(&read, attempt)?))
        })
        .await
    }

    fn write_claim(
        &self,
        app: &AppName,
        read: &RecordSnapshot,
        attempt: &OnceAttempt,
        lease: LeaseId,
    ) -> Transaction {
        let mut next = read
            .record
            .state
            .with_attempt(attempt.clone(), read.record.last());
        let old = next.forget_old();
        let claim = Claim {
            token: attempt.token,
            by: attempt.by.clone(),
        };
        let transaction = self
            .unchanged(app, read)
            .put(keys::once_state(app), document::encode(&next))
            .put_with_lease(keys::once_claim(app), document::encode(&claim), lease);
        old.into_iter().fold(transaction, |transaction, token| {
            transaction.delete(keys::once_log(app, token))
        })
    }

    /// Keeps the claim alive, and stores the end of the log so far.
    pub async fn keep_alive(
        &self,
        app: &AppName,
        token: u64,
        asker: CueCaller<'_>,
        request: &KeepClaim,
    ) -> Result<(), ServiceError> {
        let (read, lease) = self.claimed(app, token, asker).await?;
        match self.store.lease_keep_alive(lease).await {
            Ok(()) => {}
            Err(StoreError::LeaseNotFound(_)) => return Err(lease_ended(app, token)),
            Err(error) => return Err(error.into()),
        }
        let Some(log) = &request.log else {
            return Ok(());
        };
        let transaction = Transaction::new()
            .when_unchanged(&keys::once_claim(app), read.claim.as_ref())
            .put(keys::once_log(app, token), document::encode(&tail(log)));
        if settle(&*self.store, transaction).await?.is_committed() {
            Ok(())
        } else {
            Err(lease_ended(app, token))
        }
    }

    /// Records the outcome and releases the claim, in one transaction.
    pub async fn finish(
        &self,
        app: &AppName,
        token: u64,
        asker: CueCaller<'_>,
        request: &FinishClaim,
    ) -> Result<(), ServiceError> {
        let lease = compare_and_swap(&*self.store, |_| async {
            let (read, lease) = match self.claimed(app, token, asker).await {
                Ok(claimed) => claimed,
                Err(refused) => {
                    return if self.finished_so(app, token, asker, request).await? {
                        Ok(Swap::Done(None))
                    } else {
                        Err(refused)
                    };
                }
            };
            let mut next = read.record.state.clone();
            if let Some(attempt) = &mut next.last {
                let ended = self.clock.now();
                attempt.outcome = match request.exit_code {
                    0 => AttemptOutcome::Done { ended },
                    exit_code => AttemptOutcome::Failed { ended, exit_code },
                };
            }
            let transaction = Transaction::new()
                .when_unchanged(&keys::once_claim(app), read.claim.as_ref())
                .when_unchanged(&keys::once_state(app), read.state.as_ref())
                .put(keys::once_state(app), document::encode(&next))
                .put(
                    keys::once_log(app, token),
                    document::encode(&tail(&request.log)),
                )
                .delete(keys::once_claim(app));
            Ok(Swap::Write(transaction, Some(lease)))
        });
        if let Some(lease) = lease.await? {
            self.revoke_lease(lease).await;
        }
        Ok(())
    }

    /// Returns whether the same outcome was recorded before, and only the reply was lost.
    async fn finished_so(
        &self,
        app: &AppName,
        token: u64,
        asker: CueCaller<'_>,
        request: &FinishClaim,
    ) -> Result<bool, ServiceError> {
        let last = self.read(app).await?.record.last();
        Ok(last.is_some_and(|attempt| {
            attempt.token == token
                && attempt.by == asker.name.as_str()
                && match attempt.outcome {
                    AttemptOutcome::Done { .. } => request.exit_code == 0,
                    AttemptOutcome::Failed { exit_code, .. } => request.exit_code == exit_code,
                    _ => false,
                }
        }))
    }

    /// Returns an attempt once it has ended, or when the time is up.
    pub async fn wait(
        &self,
        app: &AppName,
        token: u64,
        asker: CueCaller<'_>,
        most: Duration,
    ) -> Result<OnceAttempt, ServiceError> {
        let read = self.read(app).await?;
        if self.role(&read.record.parts, asker).await? == OnceRole::Stranger {
            return Err(no_attempt(app, token));
        }
        let ended = async {
            loop {
                // The watch is open before the read, so an end in between wakes it.
                let mut changes = self
                    .store
                    .watch(&keys::once_prefix(app), WatchStart::Now)
                    .await?;
                let attempt = self.attempt(app, token).await?;
                if attempt.outcome != AttemptOutcome::Running {
                    return Ok(attempt);
                }
                if let Some(Err(error)) = changes.next().await {
                    return Err(ServiceError::from(error));
                }
            }
        };
        match tokio::time::timeout(most, ended).await {
            Ok(attempt) => attempt,
            Err(_) => self.attempt(app, token).await,
        }
    }

    async fn attempt(&self, app: &AppName, token: u64) -> Result<OnceAttempt, ServiceError> {
        use bunraku_wire::api::once::OnceEvent;
        let record = self.read(app).await?.record;
        let earlier = record.state.history.iter().filter_map(|event| match event {
            OnceEvent::Attempt(attempt) => Some(attempt.clone()),
            OnceEvent::Reset { .. } => None,
        });
        record
            .last()
            .into_iter()
            .chain(earlier)
            .find(|attempt| attempt.token == token)
            .ok_or_else(|| no_attempt(app, token))
    }

    /// Returns the claim, if it is this caller's and alive.
    async fn claimed(
        &self,
        app: &AppName,
        token: u64,
        asker: CueCaller<'_>,
    ) -> Result<(RecordSnapshot, LeaseId), ServiceError> {
        let read = self.read(app).await?;
        let lease = read.claim.as_ref().and_then(|entry| entry.lease);
        match (&read.record.claim, lease) {
            (Some(claim), Some(lease))
                if claim.token == token && claim.by == asker.name.as_str() =>
            {
                Ok((read, lease))
            }
            _ => Err(lease_ended(app, token)),
        }
    }

    async fn revoke_lease(&self, lease: LeaseId) {
        // If this fails, the lease expires on its own.
        if let Err(error) = self.store.lease_revoke(lease).await {
            tracing::debug!(error = %error, "cannot revoke a lease");
        }
    }
}

fn no_attempt(app: &AppName, token: u64) -> ServiceError {
    ServiceError::NotFound {
        what: format!("attempt {token} of `{app}`"),
        hint: None,
    }
}

fn granted(outcome: &Result<ClaimReply, ServiceError>) -> bool {
    matches!(outcome, Ok(ClaimReply::Granted { .. }))
}

/// Returns the running attempt of this claim, if the reply to it was lost: it is
/// running under the caller's name.
fn own_running(
    read: &RecordSnapshot,
    asker: CueCaller<'_>,
    request: &ClaimOnce,
) -> Option<OnceAttempt> {
    read.record.last().filter(|attempt| {
        attempt.outcome == AttemptOutcome::Running
            && attempt.claim == request.claim
            && attempt.by == asker.name.as_str()
    })
}

fn grant(read: &RecordSnapshot, attempt: OnceAttempt) -> Result<ClaimReply, ServiceError> {
    let parts = &read.record.parts;
    let document = parts
        .definition
        .as_ref()
        .map(|defined| defined.document.clone())
        .unwrap_or_default();
    let definition =
        Definition::parse(document).map_err(|error| ServiceError::invalid(error.to_string()))?;
    Ok(ClaimReply::Granted {
        attempt,
        document: definition.merged(&parts.fragments),
        work: definition.work,
    })
}

fn lease_ended(app: &AppName, token: u64) -> ServiceError {
    ServiceError::conflict(
        format!("claim {token} on `{app}` is no longer yours: its lease expired"),
        format!("see its state with `bunraku once show {app}`"),
    )
}

/// Returns the last bytes of a text, starting at a character boundary.
fn tail(log: &str) -> &str {
    let mut start = log.len().saturating_sub(LOG_KEPT);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    &log[start..]
}
