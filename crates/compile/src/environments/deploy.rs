//! Deploys: any permitted user requests them, and one server at a time runs
//! them in order.
//!
//! Of several pending deploys, only the newest runs: its result would replace
//! the others anyway. The pointer to the deployed code only moves forward in
//! deploy numbers, in a transaction that compares the claim.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bunraku_model::{CodeId, EnvironmentName};
use bunraku_store::{
    Compare, Follow, Revision, Settled, StoreError, Swap, Transaction, TransactionOutcome,
    compare_and_swap, settle,
};
use bunraku_wire::api::reactors::Reactor;
use bunraku_wire::api::{
    CompileProblem, CompileReason, Deploy, DeployRequest, DeployState, DeployStatus, DeployedCode,
    EnvironmentPin, HookReply,
};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::hook::{self, Delivery};
use super::{Environments, code_request};
use crate::code::check_reference;
use crate::compiles::{CompileFailure, WorkLease};
use bunraku_control::document::{self, Versioned};
use bunraku_control::error::chain;
use bunraku_control::webhook_secrets::{DeliveryProof, Secret};
use bunraku_control::{ServiceError, keys};

/// Code that is ready for use.
struct PreparedCode {
    code_id: CodeId,
    compiler: String,
    reactors: Vec<Reactor>,
}

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

    /// Runs deploys until cancelled.
    pub async fn run(
        &self,
        mut lease: watch::Receiver<Option<WorkLease>>,
        shutdown: CancellationToken,
    ) {
        let mut follow = Follow::new(self.store.clone(), keys::ENVIRONMENTS);
        let mut claims = Follow::new(self.store.clone(), keys::DEPLOY_CLAIMS);
        let mut tasks: JoinSet<(EnvironmentName, bool)> = JoinSet::new();
        let mut busy: BTreeMap<EnvironmentName, ()> = BTreeMap::new();
        loop {
            let retry = tokio::select! {
                () = shutdown.cancelled() => return,
                followed = follow.next() => self.settle(followed.map(|_| ())).await,
                followed = claims.next() => self.settle(followed.map(|_| ())).await,
                _ = lease.changed() => false,
                Some(ended) = tasks.join_next() => match ended {
                    Ok((name, again)) => { busy.remove(&name); again }
                    Err(error) => {
                        tracing::error!(error = %error, "a deploy task crashed");
                        if tasks.is_empty() { busy.clear(); }
                        true
                    }
                },
            };
            if retry {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(self.retry) => {}
                }
            }
            let current = lease.borrow_and_update().clone();
            let Some(current) = current.filter(|lease| !lease.lost.is_cancelled()) else {
                continue;
            };
            let waiting = match self.with_work().await {
                Ok(waiting) => waiting,
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot read the deploys; retrying");
                    continue;
                }
            };
            for name in waiting {
                if busy.insert(name.clone(), ()).is_none() {
                    let (environments, lease) = (self.clone(), current.clone());
                    tasks.spawn(async move {
                        let again = environments.run_under_lease(&name, &lease).await;
                        (name, again)
                    });
                }
            }
        }
    }

    async fn settle(&self, followed: Result<(), StoreError>) -> bool {
        if let Err(error) = &followed {
            tracing::warn!(error = %error, "cannot watch the deploys; retrying");
        }
        followed.is_err()
    }

    /// Returns the environments with a pending deploy that no server has claimed.
    async fn with_work(&self) -> Result<Vec<EnvironmentName>, ServiceError> {
        let mut names = Vec::new();
        for entry in document::read_all(&*self.store, keys::ENVIRONMENTS).await? {
            let Some((name, document)) = keys::parse_environment_key(&entry.key) else {
                continue;
            };
            if document.starts_with("deploys/")
                && !document::decode::<Deploy>(&entry)?.state.is_final()
                && names.last() != Some(&name)
                && self.store.get(&keys::deploy_claim(&name)).await?.is_none()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Runs all pending deploys of one environment. Returns true to retry later.
    async fn run_under_lease(&self, name: &EnvironmentName, lease: &WorkLease) -> bool {
        let claim = match self.claim(name, lease).await {
            Ok(Some(claim)) => claim,
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!(environment = %name, error = %chain(&error), "cannot claim the deploys of an environment");
                return true;
            }
        };
        let outcome = tokio::select! {
            () = lease.lost.cancelled() => return true,
            outcome = self.run_pending(name, claim) => outcome,
        };
        let key = keys::deploy_claim(name);
        let release = Transaction::new()
            .when(Compare::Modified(key.clone(), claim))
            .delete(key);
        let released = self.store.commit(release).await;
        match (outcome, released) {
            (Ok(()), Ok(_)) => false,
            (outcome, _) => {
                if let Err(error) = outcome {
                    tracing::warn!(environment = %name, error = %chain(&error), "a deploy was interrupted; retrying");
                }
                true
            }
        }
    }

    async fn claim(
        &self,
        name: &EnvironmentName,
        lease: &WorkLease,
    ) -> Result<Option<Revision>, ServiceError> {
        let key = keys::deploy_claim(name);
        let value = document::encode(&serde_json::json!({ "since": self.clock.now() }));
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put_with_lease(key, value, lease.id);
        Ok(match self.store.commit(transaction).await? {
            TransactionOutcome::Committed(revision) => Some(revision),
            TransactionOutcome::Refused(_) => None,
        })
    }

    /// Runs deploys until none is pending.
    async fn run_pending(
        &self,
        name: &EnvironmentName,
        claim: Revision,
    ) -> Result<(), ServiceError> {
        loop {
            let entries = document::read_all(&*self.store, &keys::deploys(name)).await?;
            let mut open = Vec::new();
            for entry in entries {
                let document: Deploy = document::decode(&entry)?;
                if !document.state.is_final() {
                    open.push(Versioned { document, entry });
                }
            }
            let Some(newest) = open.pop() else {
                return Ok(());
            };
            for older in open {
                self.supersede(name, claim, older, newest.document.number)
                    .await?;
            }
            self.step(name, claim, newest).await?;
        }
    }

    /// Marks an older deploy as superseded by the newer one, which queues every
    /// node too. An older deploy that is already queueing nodes finishes
    /// instead.
    async fn supersede(
        &self,
        name: &EnvironmentName,
        claim: Revision,
        older: Versioned<Deploy>,
        by: u64,
    ) -> Result<(), ServiceError> {
        if let DeployState::Queueing { code_id } = &older.document.state {
            return self
                .queue_nodes(name, claim, &older, &code_id.clone())
                .await;
        }
        let state = DeployState::Superseded { by };
        self.write(name, claim, &older, state, Transaction::new())
            .await
    }

    async fn step(
        &self,
        name: &EnvironmentName,
        claim: Revision,
        deploy: Versioned<Deploy>,
    ) -> Result<(), ServiceError> {
        if let DeployState::Queueing { code_id } = &deploy.document.state {
            return self
                .queue_nodes(name, claim, &deploy, &code_id.clone())
                .await;
        }
        match self.prepare(name, &deploy.document).await? {
            Err(problem) => {
                let at = self.clock.now();
                let state = DeployState::Failed { at, problem };
                self.write(name, claim, &deploy, state, Transaction::new())
                    .await
            }
            Ok(prepared) => self.take_into_use(name, claim, &deploy, prepared).await,
        }
    }

    /// Fetches, unpacks, and prepares the compiler: a failure that affects
    /// every node happens here, before anything changes.
    async fn prepare(
        &self,
        name: &EnvironmentName,
        deploy: &Deploy,
    ) -> Result<Result<PreparedCode, CompileProblem>, ServiceError> {
        let settings = self.settings(name).await?;
        let request = code_request(&settings, deploy.commit.as_deref());
        let code_id = match self.code.fetch(name, &request).await {
            Ok(code_id) => code_id,
            Err(error) if error.is_lasting() => return Ok(Err(error.into_problem())),
            Err(error) => return Err(super::code_error(error)),
        };
        let reactors = match self.reactors(name, &code_id).await? {
            Ok(reactors) => reactors,
            Err(problem) => return Ok(Err(problem)),
        };
        match self.compiles.compiler_name(name, &code_id).await {
            Ok(compiler) => Ok(Ok(PreparedCode {
                code_id,
                compiler,
                reactors,
            })),
            Err(CompileFailure::Problems(mut problems)) => {
                Ok(Err(problems.pop().unwrap_or_default()))
            }
            Err(CompileFailure::Temporary(error)) => {
                Err(ServiceError::internal("cannot prepare the compiler", error))
            }
        }
    }

    /// Returns the reactor rules in the code.
    async fn reactors(
        &self,
        name: &EnvironmentName,
        code_id: &CodeId,
    ) -> Result<Result<Vec<Reactor>, CompileProblem>, ServiceError> {
        let tree = self.code.tree(name, code_id).await;
        let tree = tree.map_err(super::code_error)?;
        tokio::task::spawn_blocking(move || bunraku_cues::reactors::read_all(&tree))
            .await
            .map_err(|error| ServiceError::internal("cannot read the reactors", error))
    }

    async fn take_into_use(
        &self,
        name: &EnvironmentName,
        claim: Revision,
        deploy: &Versioned<Deploy>,
        prepared: PreparedCode,
    ) -> Result<(), ServiceError> {
        let PreparedCode {
            code_id,
            compiler,
            reactors,
        } = prepared;
        let key = keys::environment_deployed(name);
        let known = document::read::<DeployedCode>(&*self.store, &key).await?;
        let same = known
            .as_ref()
            .is_some_and(|known| known.document.code_id == code_id);
        if same && deploy.document.hook {
            let state = DeployState::Unchanged { code_id };
            return self
                .write(name, claim, deploy, state, Transaction::new())
                .await;
        }
        let deployed = DeployedCode {
            code_id: code_id.clone(),
            number: deploy.document.number,
            at: self.clock.now(),
            compiler,
        };
        let transaction = Transaction::new()
            .when_unchanged(&key, known.as_ref().map(|known| &known.entry))
            .put(key, document::encode(&deployed));
        let key = keys::environment_reactors(name);
        let transaction = if reactors.is_empty() {
            transaction.delete(key)
        } else {
            transaction.put(key, document::encode(&reactors))
        };
        let transaction = pinned(transaction, name, &deploy.document, &deployed);
        let state = DeployState::Queueing { code_id };
        self.write(name, claim, deploy, state, transaction).await?;
        let touched = self.code.touch(name, &deployed.code_id).await;
        touched.map_err(super::code_error)
    }

    /// Queues every node of the environment, even after repeated restarts.
    async fn queue_nodes(
        &self,
        name: &EnvironmentName,
        claim: Revision,
        deploy: &Versioned<Deploy>,
        code_id: &CodeId,
    ) -> Result<(), ServiceError> {
        let nodes = self.compiles.nodes(Some(name)).await?;
        let reason = if deploy.document.hook {
            CompileReason::Hook
        } else {
            CompileReason::Code
        };
        self.compiles.queue().request_all(&nodes, reason).await?;
        let state = DeployState::Deployed {
            code_id: code_id.clone(),
            at: self.clock.now(),
            nodes: nodes.len(),
        };
        self.write(name, claim, deploy, state, Transaction::new())
            .await
    }

    /// Writes a deploy's next state, if the claim is still valid.
    async fn write(
        &self,
        name: &EnvironmentName,
        claim: Revision,
        deploy: &Versioned<Deploy>,
        state: DeployState,
        transaction: Transaction,
    ) -> Result<(), ServiceError> {
        let key = keys::deploy(name, deploy.document.number);
        let next = Deploy {
            state,
            ..deploy.document.clone()
        };
        let transaction = transaction
            .when(Compare::Modified(keys::deploy_claim(name), claim))
            .when_unchanged(&key, Some(&deploy.entry))
            .put(key, document::encode(&next));
        match settle(&*self.store, transaction).await? {
            Settled::Committed => Ok(()),
            Settled::Refused(_) => Err(ServiceError::conflict(
                format!("another server has taken over the deploys of `{name}`"),
                "nothing was changed",
            )),
        }
    }
}

/// Adds the pin that comes with a chosen commit. Without one, the pin stays.
fn pinned(
    transaction: Transaction,
    name: &EnvironmentName,
    deploy: &Deploy,
    deployed: &DeployedCode,
) -> Transaction {
    let key = keys::environment_pin(name);
    match &deploy.commit {
        None => transaction,
        Some(reference) if deploy.pin => {
            let pin = EnvironmentPin {
                reference: reference.clone(),
                code_id: deployed.code_id.clone(),
                by: deploy.by.clone(),
                since: deployed.at,
            };
            transaction.put(key, document::encode(&pin))
        }
        Some(_) => transaction.delete(key),
    }
}
