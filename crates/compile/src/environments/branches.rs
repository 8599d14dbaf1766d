//! Environments that belong to branches of a control repository.

use bunraku_model::{EnvironmentName, RepositoryName};
use bunraku_store::{Compare, Transaction};
use bunraku_wire::api::{AuditSource, ReleasePolicy};

use super::deploy_requests::DeployAnswer;
use super::{Environments, new_secret};
use bunraku_control::document::{self, Decision};
use bunraku_control::webhook_secrets::Secret;
use bunraku_control::{AuditAction, EnvironmentSettings, ServiceError, keys};

/// The settings that an environment has from its branch.
#[derive(Clone, Copy, Debug)]
pub struct BranchEnvironment<'a> {
    pub url: &'a str,
    pub branch: &'a str,
    /// For a new environment.
    pub policy: ReleasePolicy,
    pub repository: &'a RepositoryName,
}

/// The answer to a request for the newest code of a branch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewestDeploy {
    /// The number of the deploy.
    Requested(u64),
    /// The environment stays at this reference.
    Pinned(String),
}

impl Environments {
    /// Creates the environment of a branch if it is missing. Returns whether it
    /// is new, or why the branch cannot have it.
    pub async fn ensure_branch(
        &self,
        name: &EnvironmentName,
        wanted: &BranchEnvironment<'_>,
    ) -> Result<Result<bool, String>, ServiceError> {
        loop {
            let Some(settings) = EnvironmentSettings::read(&*self.store, name).await? else {
                if self.create_branch(name, wanted).await? {
                    return Ok(Ok(true));
                }
                continue;
            };
            if settings.repository.as_ref() != Some(wanted.repository) {
                let owner = match settings.repository {
                    None => "of its own".to_owned(),
                    Some(other) => format!("of repository `{other}`"),
                };
                return Ok(Err(format!("environment `{name}` exists already, {owner}")));
            }
            if settings.branch.as_deref() != Some(wanted.branch) {
                // The branch that it belonged to is gone.
                let other = settings.branch.unwrap_or_default();
                self.take_over(name, wanted, &other).await?;
                continue;
            }
            if settings.url != wanted.url {
                self.take_over(name, wanted, wanted.branch).await?;
            }
            return Ok(Ok(false));
        }
    }

    async fn create_branch(
        &self,
        name: &EnvironmentName,
        wanted: &BranchEnvironment<'_>,
    ) -> Result<bool, ServiceError> {
        let settings = EnvironmentSettings {
            url: wanted.url.to_owned(),
            branch: Some(wanted.branch.to_owned()),
            policy: wanted.policy,
            volatile: None,
            order: None,
            repository: Some(wanted.repository.clone()),
            poll_seconds: None,
            allows_external_compiler: false,
            fact_targeting: false,
            approval: None,
            created: self.clock.now(),
        };
        let key = keys::environment_settings(name);
        let secret = Secret {
            secret: new_secret(),
        };
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put(key, document::encode(&settings))
            .put(keys::environment_secret(name), document::encode(&secret));
        let action = AuditAction::new("create-environment")
            .on("environment", name)
            .detail("branch", wanted.branch)
            .by(
                format!("repository {}", wanted.repository),
                AuditSource::Server,
            );
        let transaction = self.audit.record_in(transaction, action);
        Ok(self.store.commit(transaction).await?.is_committed())
    }

    /// Gives an environment of this repository to another branch or address.
    async fn take_over(
        &self,
        name: &EnvironmentName,
        wanted: &BranchEnvironment<'_>,
        from: &str,
    ) -> Result<(), ServiceError> {
        document::update(
            &*self.store,
            &keys::environment_settings(name),
            |current: Option<EnvironmentSettings>| {
                let belongs = |settings: &EnvironmentSettings| {
                    settings.repository.as_ref() == Some(wanted.repository)
                        && settings.branch.as_deref() == Some(from)
                };
                Ok(match current.filter(belongs) {
                    None => Decision::Keep,
                    Some(settings) => Decision::Write(EnvironmentSettings {
                        url: wanted.url.to_owned(),
                        branch: Some(wanted.branch.to_owned()),
                        // An operator allowed it for the code of another branch.
                        allows_external_compiler: settings.allows_external_compiler
                            && from == wanted.branch,
                        ..settings
                    }),
                })
            },
        )
        .await?;
        Ok(())
    }

    /// Requests the newest code of an environment's branch.
    pub async fn deploy_branch(
        &self,
        name: &EnvironmentName,
        by: &str,
    ) -> Result<NewestDeploy, ServiceError> {
        Ok(match self.deploy_newest(name, by).await? {
            DeployAnswer::Requested(deploy) => NewestDeploy::Requested(deploy.number),
            DeployAnswer::Pinned(reference) => NewestDeploy::Pinned(reference),
        })
    }

    /// Returns the environments of a repository with their branches.
    pub async fn of_repository(
        &self,
        repository: &RepositoryName,
    ) -> Result<Vec<(EnvironmentName, String)>, ServiceError> {
        let mut found = Vec::new();
        for entry in document::read_all(&*self.store, keys::ENVIRONMENTS).await? {
            if let Some((name, "settings")) = keys::parse_environment_key(&entry.key) {
                let settings: EnvironmentSettings = document::decode(&entry)?;
                if settings.repository.as_ref() == Some(repository) {
                    found.push((name, settings.branch.unwrap_or_default()));
                }
            }
        }
        Ok(found)
    }
}
