//! Requests for deploys, by people, pushes and polls, and their status.
//!
//! A request only writes a numbered record. `deploy.rs` runs it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bunraku_model::EnvironmentName;
use bunraku_store::{Compare, Swap, Transaction, compare_and_swap, settle};
use bunraku_wire::api::AuditSource;
use bunraku_wire::api::{
    Deploy, DeployRequest, DeployState, DeployStatus, EnvironmentPin, HookReply,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Environments;
use super::hook::{self, Delivery};
use crate::code::check_reference;
use bunraku_control::document;
use bunraku_control::webhook_secrets::{DeliveryProof, Secret};
use bunraku_control::{AuditAction, ServiceError, keys};

/// What a caller wants to have deployed.
pub(super) struct DeployOrder<'a> {
    pub(super) commit: Option<&'a str>,
    pub(super) pin: bool,
    pub(super) by: &'a str,
    /// Requested by a push or a poll instead of a person.
    pub(super) hook: bool,
}

impl DeployOrder<'_> {
    /// Returns whether a stored deploy comes from this order.
    fn is_of(&self, deploy: &Deploy, requested: Timestamp) -> bool {
        deploy.requested == requested
            && deploy.by == self.by
            && deploy.commit.as_deref() == self.commit
            && deploy.hook == self.hook
    }
}

/// The answer to a [`DeployOrder`].
pub(super) enum DeployAnswer {
    Requested(Deploy),
    /// The environment is, or is about to be, pinned to this reference.
    Pinned(String),
}

/// Number of deploys remembered per environment.
const REMEMBERED: usize = 50;

impl Environments {
    /// Requests a deploy.
    pub async fn deploy(
        &self,
        name: &EnvironmentName,
        request: &DeployRequest,
        by: &str,
    ) -> Result<Deploy, ServiceError> {
        if let Some(commit) = &request.commit {
            check_reference(commit).map_err(|error| ServiceError::invalid(error.to_string()))?;
        }
        let order = DeployOrder {
            commit: request.commit.as_deref(),
            pin: request.pin && request.commit.is_some(),
            by,
            hook: false,
        };
        match self.ask(name, &order).await? {
            DeployAnswer::Requested(deploy) => Ok(deploy),
            DeployAnswer::Pinned(reference) => Err(ServiceError::conflict(
                format!("environment `{name}` is pinned to `{reference}`"),
                format!(
                    "lift the pin with `bunraku environment unpin {name}`, or deploy other code with `--commit`"
                ),
            )),
        }
    }

    /// Handles a webhook delivery. Returns nothing if it is not signed.
    pub async fn deliver(
        &self,
        name: &EnvironmentName,
        event: Option<&str>,
        proof: &DeliveryProof<'_>,
        body: &[u8],
    ) -> Result<Option<HookReply>, ServiceError> {
        let key = keys::environment_secret(name);
        let secret = document::read::<Secret>(&*self.store, &key).await?;
        let known = secret.map(|secret| secret.document.secret);
        // A nonexistent environment takes equally long and gives the same answer.
        let secret = known.clone().unwrap_or_else(super::new_secret);
        if !proof.verifies(&secret, body) || known.is_none() {
            return Ok(None);
        }
        let settings = self.settings(name).await?;
        match hook::read(event, body, settings.branch.as_deref()) {
            Delivery::Ignored(why) => Ok(Some(hook::reply(None, why))),
            Delivery::Deploy => {
                let answer = self.deploy_newest(name, "webhook").await?;
                Ok(Some(match answer {
                    DeployAnswer::Requested(deploy) => {
                        hook::reply(Some(deploy.number), "deploying the newest code")
                    }
                    DeployAnswer::Pinned(reference) => hook::reply(
                        None,
                        format!("the environment is pinned to `{reference}`; nothing is deployed"),
                    ),
                }))
            }
        }
    }

    /// Requests the newest code on behalf of a push or a poll. A pinned
    /// environment stays where it is.
    pub(super) async fn deploy_newest(
        &self,
        name: &EnvironmentName,
        by: &str,
    ) -> Result<DeployAnswer, ServiceError> {
        if let Some(waiting) = self.waiting_hook(name).await? {
            return Ok(DeployAnswer::Requested(waiting));
        }
        let order = DeployOrder {
            commit: None,
            pin: false,
            by,
            hook: true,
        };
        self.ask(name, &order).await
    }

    /// Returns a pending webhook deploy: it will fetch the newest code anyway.
    async fn waiting_hook(&self, name: &EnvironmentName) -> Result<Option<Deploy>, ServiceError> {
        let newest = self.deploys(name).await?.pop();
        Ok(newest
            .filter(|deploy| deploy.hook && deploy.commit.is_none())
            .filter(|deploy| deploy.state == DeployState::Waiting))
    }

    async fn ask(
        &self,
        name: &EnvironmentName,
        order: &DeployOrder<'_>,
    ) -> Result<DeployAnswer, ServiceError> {
        let requested = self.clock.now();
        let tried = &AtomicBool::new(false);
        compare_and_swap(&*self.store, |_| async move {
            self.settings(name).await?;
            let pin_key = keys::environment_pin(name);
            let pin = document::read::<EnvironmentPin>(&*self.store, &pin_key).await?;
            let known = self.deploys(name).await?;
            if tried.swap(true, Ordering::Relaxed)
                && let Some(own) = known.iter().find(|known| order.is_of(known, requested))
            {
                // Its answer was lost, and it has already begun.
                return Ok(Swap::Done(DeployAnswer::Requested(own.clone())));
            }
            if order.commit.is_none() {
                let pending = known.iter().rev().find(|deploy| !deploy.state.is_final());
                let pending = pending.filter(|deploy| deploy.pin);
                let reference = match (&pin, pending) {
                    (_, Some(deploy)) => deploy.commit.clone(),
                    (Some(pin), None) => Some(pin.document.reference.clone()),
                    (None, None) => None,
                };
                if let Some(reference) = reference {
                    return Ok(Swap::Done(DeployAnswer::Pinned(reference)));
                }
            }
            let deploy = Deploy {
                number: known.last().map_or(1, |last| last.number + 1),
                commit: order.commit.map(str::to_owned),
                pin: order.pin,
                by: order.by.to_owned(),
                hook: order.hook,
                requested,
                state: DeployState::Waiting,
            };
            let key = keys::deploy(name, deploy.number);
            // A number that is free and a pin that is unchanged mean that the decision still holds.
            let mut transaction = Transaction::new()
                .when(Compare::Exists(keys::environment_settings(name)))
                .when_unchanged(&pin_key, pin.as_ref().map(|pin| &pin.entry))
                .when(Compare::Absent(key.clone()))
                .put(key, document::encode(&deploy));
            let surplus = known.len().saturating_sub(REMEMBERED);
            for old in known.iter().take(surplus.min(50)) {
                if old.state.is_final() {
                    transaction = transaction.delete(keys::deploy(name, old.number));
                }
            }
            if order.hook {
                // An operator's request is recorded with its outcome.
                let source = match order.by {
                    "webhook" => AuditSource::Webhook,
                    _ => AuditSource::Server,
                };
                let action = AuditAction::new("deploy-environment")
                    .on("environment", name)
                    .detail("deploy", deploy.number)
                    .by(order.by, source);
                transaction = self.audit.record_in(transaction, action);
            }
            Ok(Swap::Write(transaction, DeployAnswer::Requested(deploy)))
        })
        .await
    }

    /// Returns the pin of an environment.
    pub(super) async fn pin(
        &self,
        name: &EnvironmentName,
    ) -> Result<Option<EnvironmentPin>, ServiceError> {
        let key = keys::environment_pin(name);
        let found = document::read(&*self.store, &key).await?;
        Ok(found.map(|found| found.document))
    }

    /// Lifts the pin. The code stays in use until the next deploy.
    pub async fn unpin(&self, name: &EnvironmentName) -> Result<(), ServiceError> {
        self.settings(name).await?;
        let transaction = Transaction::new().delete(keys::environment_pin(name));
        settle(&*self.store, transaction).await?;
        Ok(())
    }

    /// Returns the remembered deploys, oldest first.
    pub(super) async fn deploys(
        &self,
        name: &EnvironmentName,
    ) -> Result<Vec<Deploy>, ServiceError> {
        let entries = document::read_all(&*self.store, &keys::deploys(name)).await?;
        entries.iter().map(document::decode).collect()
    }

    /// Returns a deploy and the results of its code. Waits until both are
    /// finished, up to the time limit.
    pub async fn deploy_status(
        &self,
        name: &EnvironmentName,
        number: u64,
        wait: Duration,
    ) -> Result<DeployStatus, ServiceError> {
        let deadline = Instant::now() + wait;
        loop {
            let mut changes = self.compiles.changes();
            let looking = Instant::now();
            let status = self.status_now(name, number).await?;
            if status.finished || Instant::now() >= deadline {
                return Ok(status);
            }
            // Observing a large fleet must not slow it down.
            let rest = (looking.elapsed() * 10).min(Duration::from_secs(2));
            tokio::time::sleep_until(deadline.min(Instant::now() + rest)).await;
            // Deploys change without the queue: check again after a short time at most.
            let moment = deadline.min(Instant::now() + Duration::from_millis(300));
            self.compiles.queue_changed(&mut changes, moment).await;
        }
    }

    async fn status_now(
        &self,
        name: &EnvironmentName,
        number: u64,
    ) -> Result<DeployStatus, ServiceError> {
        let found = document::read::<Deploy>(&*self.store, &keys::deploy(name, number)).await?;
        let deploy = found.map(|found| found.document);
        let deploy = deploy.ok_or_else(|| ServiceError::NotFound {
            what: format!("deploy {number} of environment `{name}`"),
            hint: Some(format!("list them with `bunraku environment show {name}`")),
        })?;
        let code_id = match &deploy.state {
            DeployState::Queueing { code_id }
            | DeployState::Deployed { code_id, .. }
            | DeployState::Unchanged { code_id } => Some(code_id),
            _ => None,
        };
        let standing = match code_id {
            Some(code_id) => self.compiles.commit_progress(name, Some(code_id)).await?,
            None => Default::default(),
        };
        let modules = match code_id {
            Some(code_id) => {
                let modules = self.code.modules(name, code_id).await;
                modules.map_err(super::code_error)?
            }
            None => Vec::new(),
        };
        Ok(DeployStatus {
            finished: deploy.state.is_final() && standing.progress.waiting == 0,
            deploy,
            progress: standing.progress,
            failures: standing.failures,
            modules,
        })
    }
}
