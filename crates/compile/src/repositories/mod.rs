//! Control repositories: every branch is an environment.
//!
//! A *synchronization* reads the branches of a repository, creates missing
//! environments, requests deploys for changed branches, and removes the
//! environments of deleted branches. One server at a time does this. Each step
//! is safe to repeat, so another server can continue after a crash.
//!
//! An environment with nodes is never removed: it is kept and reported.

mod branch_names;
mod polls;
mod sync;
mod worker;

use std::time::Duration;

use bunraku_model::{EnvironmentName, RepositoryName};
use bunraku_store::{Compare, SharedStore, Transaction, TransactionOutcome};
use bunraku_wire::api::repositories::{
    BranchRules, NewRepository, RepositoryChange, RepositoryChanged, RepositorySummary,
    RepositorySync, SyncRequested,
};
use bunraku_wire::api::{AuditSource, HookReply};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::code::{Code, check_url, masked};
use crate::environments::{Environments, check_poll, push_is_ignored};
use bunraku_control::clock::Clock;
use bunraku_control::document::{self, Decision};
use bunraku_control::webhook_secrets::{DeliveryProof, Secret, new_secret};
use bunraku_control::{AuditAction, ServiceAudit, ServiceError, keys};

/// The settings of a repository.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RepositorySettings {
    url: String,
    #[serde(flatten)]
    rules: BranchRules,
    created: Timestamp,
}

/// The newest request for a synchronization.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct SyncRequest {
    number: u64,
    /// Whether branches that did not change are deployed as well.
    all: bool,
    by: String,
}

/// Handle for control repositories.
#[derive(Clone)]
pub struct Repositories {
    store: SharedStore,
    clock: Clock,
    code: Code,
    environments: Environments,
    leader_ttl: Duration,
    audit: ServiceAudit,
}

impl Repositories {
    /// Records changes in this audit log.
    #[must_use]
    pub fn with_audit(mut self, audit: impl Into<ServiceAudit>) -> Self {
        self.audit = audit.into();
        self
    }

    pub fn new(
        store: SharedStore,
        clock: Clock,
        code: Code,
        environments: Environments,
        leader_ttl: Duration,
    ) -> Self {
        Self {
            store,
            clock,
            code,
            environments,
            leader_ttl,
            audit: ServiceAudit::default(),
        }
    }

    /// Registers a repository, and requests its first synchronization.
    pub async fn add(
        &self,
        new: &NewRepository,
        by: &str,
    ) -> Result<RepositoryChanged, ServiceError> {
        check(Some(&new.url), Some(&new.rules))?;
        let settings = RepositorySettings {
            url: new.url.clone(),
            rules: new.rules.clone(),
            created: self.clock.now(),
        };
        let secret = new_secret();
        let request = SyncRequest {
            number: 1,
            all: true,
            by: by.to_owned(),
        };
        let key = keys::repository_settings(&new.name);
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put(key, document::encode(&settings))
            .put(
                keys::repository_request(&new.name),
                document::encode(&request),
            )
            .put(
                keys::repository_secret(&new.name),
                document::encode(&Secret {
                    secret: secret.clone(),
                }),
            );
        match self.store.commit(transaction).await? {
            TransactionOutcome::Committed(_) => Ok(RepositoryChanged {
                repository: self.show(&new.name).await?,
                hook_secret: Some(secret),
            }),
            TransactionOutcome::Refused(_) => Err(ServiceError::conflict(
                format!("repository `{}` exists already", new.name),
                "change it with `bunraku repository set`",
            )),
        }
    }

    /// Changes the given settings, and requests a synchronization.
    pub async fn change(
        &self,
        name: &RepositoryName,
        change: &RepositoryChange,
        by: &str,
    ) -> Result<RepositoryChanged, ServiceError> {
        check(change.url.as_deref(), change.rules.as_ref())?;
        document::update(
            &*self.store,
            &keys::repository_settings(name),
            |current: Option<RepositorySettings>| {
                let mut settings = current.ok_or_else(|| no_such_repository(name))?;
                if let Some(url) = &change.url {
                    settings.url.clone_from(url);
                }
                if let Some(rules) = &change.rules {
                    settings.rules.clone_from(rules);
                }
                Ok(Decision::Write(settings))
            },
        )
        .await?;
        let hook_secret = change.new_hook_secret.then(new_secret);
        if let Some(secret) = hook_secret.clone() {
            let transaction = Transaction::new()
                .when(Compare::Exists(keys::repository_settings(name)))
                .put(
                    keys::repository_secret(name),
                    document::encode(&Secret { secret }),
                );
            self.store.commit(transaction).await?;
        }
        self.request_sync(name, false, by).await?;
        Ok(RepositoryChanged {
            repository: self.show(name).await?,
            hook_secret,
        })
    }

    /// Unregisters a repository. Its environments stay as they are.
    pub async fn remove(&self, name: &RepositoryName) -> Result<(), ServiceError> {
        self.settings(name).await?;
        let transaction = Transaction::new().delete_prefix(keys::repository_prefix(name));
        self.store.commit(transaction).await?;
        Ok(())
    }

    /// Returns all repositories, by name.
    pub async fn list(&self) -> Result<Vec<RepositorySummary>, ServiceError> {
        let mut all = Vec::new();
        for name in self.names().await? {
            match self.show(&name).await {
                Err(ServiceError::NotFound { .. }) => {}
                other => all.push(other?),
            }
        }
        Ok(all)
    }

    async fn names(&self) -> Result<Vec<RepositoryName>, ServiceError> {
        let entries = document::keys_under(&*self.store, keys::REPOSITORIES).await?;
        let name = |key: &String| match keys::parse_repository_key(key) {
            Some((name, "settings")) => Some(name),
            _ => None,
        };
        Ok(entries.iter().filter_map(name).collect())
    }

    /// Returns one repository, and what its last synchronization found.
    pub async fn show(&self, name: &RepositoryName) -> Result<RepositorySummary, ServiceError> {
        let settings = self.settings(name).await?;
        let last = self.last_sync(name).await?;
        let request = self.sync_request(name).await?;
        let done = last.as_ref().map_or(0, |last| last.request);
        Ok(RepositorySummary {
            name: name.clone(),
            url: masked(&settings.url),
            rules: settings.rules,
            waiting: request.is_some_and(|request| request.number > done),
            last,
        })
    }

    async fn settings(&self, name: &RepositoryName) -> Result<RepositorySettings, ServiceError> {
        let key = keys::repository_settings(name);
        let found = document::read(&*self.store, &key).await?;
        let found = found.map(|found| found.document);
        found.ok_or_else(|| no_such_repository(name))
    }

    async fn last_sync(
        &self,
        name: &RepositoryName,
    ) -> Result<Option<RepositorySync>, ServiceError> {
        let key = keys::repository_sync(name);
        let found = document::read(&*self.store, &key).await?;
        Ok(found.map(|found| found.document))
    }

    async fn sync_request(
        &self,
        name: &RepositoryName,
    ) -> Result<Option<SyncRequest>, ServiceError> {
        let key = keys::repository_request(name);
        let found = document::read(&*self.store, &key).await?;
        Ok(found.map(|found| found.document))
    }

    /// Requests a synchronization. With `all`, branches that did not change are
    /// deployed as well.
    pub async fn request_sync(
        &self,
        name: &RepositoryName,
        all: bool,
        by: &str,
    ) -> Result<SyncRequested, ServiceError> {
        self.settings(name).await?;
        let done = self.last_sync(name).await?.map_or(0, |last| last.request);
        let request = document::update(
            &*self.store,
            &keys::repository_request(name),
            |current: Option<SyncRequest>| {
                let pending = current.as_ref().filter(|current| current.number > done);
                let number = current.as_ref().map_or(1, |current| current.number + 1);
                Ok(Decision::Write(SyncRequest {
                    number,
                    all: all || pending.is_some_and(|pending| pending.all),
                    by: by.to_owned(),
                }))
            },
        )
        .await?;
        let number = request.map_or(0, |request| request.number);
        Ok(SyncRequested { number })
    }

    /// Handles a webhook delivery. Returns nothing if it is not signed.
    pub async fn deliver(
        &self,
        name: &RepositoryName,
        event: Option<&str>,
        proof: &DeliveryProof<'_>,
        body: &[u8],
    ) -> Result<Option<HookReply>, ServiceError> {
        let key = keys::repository_secret(name);
        let secret = document::read::<Secret>(&*self.store, &key).await?;
        let known = secret.map(|secret| secret.document.secret);
        // A nonexistent repository takes equally long and gives the same answer.
        let secret = known.clone().unwrap_or_else(new_secret);
        if !proof.verifies(&secret, body) || known.is_none() {
            return Ok(None);
        }
        let message = match push_is_ignored(event) {
            Some(why) => why,
            None => {
                let requested = self.request_sync(name, false, "webhook").await?;
                let action = AuditAction::new("sync-repository")
                    .on("repository", name)
                    .detail("request", requested.number)
                    .by("webhook", AuditSource::Webhook);
                self.audit.record(action).await;
                "the branches are being compared with the environments".to_owned()
            }
        };
        Ok(Some(HookReply {
            deploy: None,
            message,
        }))
    }
}

fn check(url: Option<&str>, rules: Option<&BranchRules>) -> Result<(), ServiceError> {
    if let Some(url) = url {
        check_url(url).map_err(|error| ServiceError::invalid(error.to_string()))?;
    }
    let Some(rules) = rules else {
        return Ok(());
    };
    if let Some(prefix) = &rules.prefix {
        EnvironmentName::new(prefix.clone())
            .map_err(|error| ServiceError::invalid(format!("the prefix is not usable: {error}")))?;
    }
    check_poll(rules.poll_seconds)
}

fn no_such_repository(name: &RepositoryName) -> ServiceError {
    ServiceError::NotFound {
        what: format!("repository `{name}`"),
        hint: Some("list them with `bunraku repository list`".to_owned()),
    }
}
