//! One synchronization of a repository.

use std::collections::BTreeMap;

use bunraku_model::{EnvironmentName, RepositoryName};
use bunraku_store::Transaction;
use bunraku_wire::api::AuditSource;
use bunraku_wire::api::repositories::{BranchState, RepositorySync};

use super::branch_names::{environment_of, is_selected};
use super::{Repositories, RepositorySettings};
use crate::code::RemoteBranches;
use crate::environments::{BranchEnvironment, NewestDeploy};
use bunraku_control::error::chain;
use bunraku_control::{AuditAction, ServiceError, document, keys};

impl Repositories {
    /// Compares the branches of a repository with the environments. If the
    /// branches cannot be read, nothing changes but the reported problem.
    pub(super) async fn sync(&self, name: &RepositoryName) -> Result<(), ServiceError> {
        let settings = self.settings(name).await?;
        let request = self.sync_request(name).await?;
        let last = self.last_sync(name).await?;
        let number = request.as_ref().map_or(0, |request| request.number);
        let all = request.is_some_and(|request| {
            request.all && request.number > last.as_ref().map_or(0, |last| last.request)
        });
        let before = last.map(|last| last.branches).unwrap_or_default();
        let (problem, branches) = match self.code.branches(&settings.url).await {
            Err(error) if error.is_lasting() => (Some(chain(&error)), before),
            Err(error) => return Err(ServiceError::internal("branches cannot be read", error)),
            // Rather an old environment too many than all of them gone by mistake.
            Ok(found) if found.heads.is_empty() => {
                (Some("the repository has no branches".to_owned()), before)
            }
            Ok(found) => {
                let task = SyncTask {
                    repositories: self,
                    name,
                    settings: &settings,
                    all,
                    before: &before,
                };
                (None, task.run(&found).await?)
            }
        };
        let done = RepositorySync {
            request: number,
            at: self.clock.now(),
            problem,
            branches,
        };
        // A repository that was removed meanwhile stays removed.
        let transaction = Transaction::new()
            .when(bunraku_store::Compare::Exists(keys::repository_settings(
                name,
            )))
            .put(keys::repository_sync(name), document::encode(&done));
        self.store.commit(transaction).await?;
        Ok(())
    }
}

struct SyncTask<'a> {
    repositories: &'a Repositories,
    name: &'a RepositoryName,
    settings: &'a RepositorySettings,
    /// Whether branches that did not change are deployed as well.
    all: bool,
    before: &'a [BranchState],
}

impl SyncTask<'_> {
    async fn run(&self, found: &RemoteBranches) -> Result<Vec<BranchState>, ServiceError> {
        let rules = &self.settings.rules;
        let owned = self.repositories.environments.of_repository(self.name);
        let owned: BTreeMap<EnvironmentName, String> = owned.await?.into_iter().collect();
        let owns = |branch: &str, environment: &EnvironmentName| {
            found.heads.contains_key(branch)
                && is_selected(rules, branch)
                && environment_of(rules, branch).is_ok_and(|own| own.environment == *environment)
        };
        let mut states = Vec::new();
        let mut environments: BTreeMap<EnvironmentName, String> = BTreeMap::new();
        for (branch, head) in &found.heads {
            if !is_selected(rules, branch) {
                continue;
            }
            let mut state = BranchState {
                branch: branch.clone(),
                head: Some(head.clone()),
                environment: None,
                note: None,
            };
            match environment_of(rules, branch) {
                Err(why) => state.note = Some(why),
                // An environment stays with its branch for as long as that exists.
                Ok(named) => match (environments.get(&named.environment)).or_else(|| {
                    let owner = owned.get(&named.environment);
                    owner.filter(|owner| *owner != branch && owns(owner, &named.environment))
                }) {
                    Some(other) => {
                        let environment = &named.environment;
                        state.note = Some(format!(
                            "the branch `{other}` is environment `{environment}` already"
                        ));
                    }
                    None => {
                        environments.insert(named.environment.clone(), branch.clone());
                        state.note = self.sync_branch(&named.environment, branch, head).await?;
                        state.environment = Some(named.environment);
                    }
                },
            }
            states.push(state);
        }
        self.purge(found, &environments, &mut states).await?;
        Ok(states)
    }

    /// Creates the environment of a branch if it is missing, and requests its
    /// deploy if the branch has changed. Returns what is unusual.
    async fn sync_branch(
        &self,
        environment: &EnvironmentName,
        branch: &str,
        head: &str,
    ) -> Result<Option<String>, ServiceError> {
        let service = &self.repositories.environments;
        let wanted = BranchEnvironment {
            url: &self.settings.url,
            branch,
            policy: self.settings.rules.policy,
            repository: self.name,
        };
        let is_new = match service.ensure_branch(environment, &wanted).await? {
            Ok(is_new) => is_new,
            Err(why) => return Ok(Some(why)),
        };
        let known = self.before.iter().find(|state| {
            state.branch == branch && state.environment.as_ref() == Some(environment)
        });
        let is_changed = known.is_none_or(|known| known.head.as_deref() != Some(head));
        if !is_new && !is_changed && !self.all {
            return Ok(known.and_then(|known| known.note.clone()));
        }
        let by = format!("repository {}", self.name);
        Ok(match service.deploy_branch(environment, &by).await? {
            NewestDeploy::Requested(_) => None,
            NewestDeploy::Pinned(reference) => {
                Some(format!("pinned to `{reference}`; not deployed"))
            }
        })
    }

    /// Removes the environments whose branch is gone or not selected, unless
    /// nodes are in them.
    async fn purge(
        &self,
        found: &RemoteBranches,
        wanted: &BTreeMap<EnvironmentName, String>,
        states: &mut Vec<BranchState>,
    ) -> Result<(), ServiceError> {
        let service = &self.repositories.environments;
        for (environment, branch) in service.of_repository(self.name).await? {
            if wanted.contains_key(&environment) {
                continue;
            }
            let reason = if found.heads.contains_key(&branch) {
                "the branch is not selected"
            } else {
                "the branch is gone"
            };
            let note = if self.settings.rules.purge {
                match service.remove(&environment).await {
                    Ok(()) => {
                        tracing::info!(%environment, branch, "removed an environment with its branch");
                        let action = AuditAction::new("remove-environment")
                            .on("environment", &environment)
                            .detail("branch", branch)
                            .because(Some(reason))
                            .by(format!("repository {}", self.name), AuditSource::Server);
                        self.repositories.audit.record(action).await;
                        continue;
                    }
                    Err(ServiceError::NotFound { .. }) => continue,
                    Err(ServiceError::Conflict { message, .. }) => {
                        format!("{reason}; kept, because {message}")
                    }
                    Err(error) => return Err(error),
                }
            } else {
                format!("{reason}; kept")
            };
            states.push(BranchState {
                head: found.heads.get(&branch).cloned(),
                branch,
                environment: Some(environment),
                note: Some(note),
            });
        }
        Ok(())
    }
}
