//! Runs deploys: one server at a time, in order. `deploy_requests.rs` requests
//! them.
//!
//! Of several pending deploys, only the newest runs: its result would replace
//! the others anyway. The pointer to the deployed code only moves forward in
//! deploy numbers, in a transaction that compares the claim.

use std::collections::BTreeMap;

use bunraku_model::{CodeId, EnvironmentName};
use bunraku_store::{
    Compare, Follow, Revision, Settled, StoreError, Transaction, TransactionOutcome, settle,
};
use bunraku_wire::api::reactors::Reactor;
use bunraku_wire::api::{
    CompileProblem, CompileReason, Deploy, DeployState, DeployedCode, EnvironmentPin,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Environments, code_request};
use crate::compiles::{CompileFailure, EXTERNAL, InspectedCompiler, WorkLease, not_allowed};
use bunraku_control::document::{self, Versioned};
use bunraku_control::error::chain;
use bunraku_control::{ServiceError, keys};

/// Code that is ready for use.
struct PreparedCode {
    code_id: CodeId,
    compiler: String,
    reactors: Vec<Reactor>,
}

impl Environments {
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
        match self.compiles.inspected(name, &code_id).await {
            Ok(InspectedCompiler { compiler, .. })
                if compiler == EXTERNAL && !settings.allows_external_compiler =>
            {
                Ok(Err(not_allowed(name)))
            }
            Ok(InspectedCompiler { compiler, reactors }) => {
                Ok(reactors.map(|reactors| PreparedCode {
                    code_id,
                    compiler,
                    reactors,
                }))
            }
            Err(CompileFailure::Problems(mut problems)) => {
                Ok(Err(problems.pop().unwrap_or_default()))
            }
            Err(CompileFailure::WorkerDied(message)) => Ok(Err(CompileProblem {
                message,
                ..CompileProblem::default()
            })),
            Err(CompileFailure::Temporary(error)) => {
                Err(ServiceError::internal("cannot prepare the compiler", error))
            }
        }
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
