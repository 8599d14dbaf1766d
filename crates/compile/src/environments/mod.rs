//! Environments: code from git, and its deployment.
//!
//! A *deploy* fetches a commit and stores its files. It makes the commit the
//! code that the environment's nodes are compiled with, and adds all of them to
//! the compile queue. Deploys of one environment are numbered and run one after
//! the other on any server that claims them. Each step is a transaction, so
//! another server continues where one was killed.
//!
//! A failed deploy does not change the nodes' catalogs, and neither does code
//! that does not compile for a node.

mod branches;
mod deploy;
mod deploy_requests;
mod hook;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bunraku_model::{CodeId, EnvironmentName, NodeName, near_names};
use bunraku_store::{Compare, Settled, SharedStore, Swap, Transaction, compare_and_swap, settle};
use bunraku_wire::api::{
    CompileReason, DeployedCode, EnvironmentChange, EnvironmentChanged, EnvironmentDetail,
    EnvironmentPin, EnvironmentSummary, NewEnvironment, VolatileChange,
};

use crate::code::{
    Code, CodeError, CodeRequest, FetchScope, check_branch, check_reference, check_url, masked,
};
use crate::compiles::Compiles;
use bunraku_control::clock::Clock;
use bunraku_control::document::{self, Decision};
use bunraku_control::nodes::NodeRecord;
use bunraku_control::webhook_secrets::{Secret, new_secret};
use bunraku_control::{EnvironmentSettings, ServiceAudit, ServiceError, keys};

pub use branches::{BranchEnvironment, NewestDeploy};
pub use hook::push_is_ignored;

/// The shortest interval between two polls.
const SHORTEST_POLL: u64 = 10;

/// The longest wait for a repository that is to be checked.
const LONGEST_LOOK: Duration = Duration::from_secs(20);

/// Handle for environments.
#[derive(Clone)]
pub struct Environments {
    store: SharedStore,
    clock: Clock,
    code: Code,
    compiles: Compiles,
    audit: ServiceAudit,
    /// Delay before a deploy that could not run is retried.
    retry: Duration,
}

impl Environments {
    pub fn new(store: SharedStore, clock: Clock, code: Code, compiles: Compiles) -> Self {
        Self {
            store,
            clock,
            code,
            compiles,
            audit: ServiceAudit::default(),
            retry: Duration::from_secs(5),
        }
    }

    /// Records changes in this audit log.
    #[must_use]
    pub fn with_audit(mut self, audit: impl Into<ServiceAudit>) -> Self {
        self.audit = audit.into();
        self
    }

    /// Creates an environment. Its code comes with the first deploy.
    pub async fn add(&self, new: &NewEnvironment) -> Result<EnvironmentChanged, ServiceError> {
        check(Some(&new.url), new.branch.as_deref())?;
        check_volatile(new.volatile.as_deref().unwrap_or_default())?;
        check_poll(new.poll_seconds)?;
        if new.check_repository {
            self.check_repository(&new.url, new.branch.as_deref())
                .await?;
        }
        let settings = EnvironmentSettings {
            url: new.url.clone(),
            branch: new.branch.clone(),
            policy: new.policy,
            volatile: new.volatile.clone(),
            order: new.order,
            repository: None,
            poll_seconds: new.poll_seconds,
            allows_external_compiler: new.allow_external_compiler,
            fact_targeting: new.fact_targeting,
            approval: None,
            created: self.clock.now(),
        };
        let secret = new_secret();
        let key = keys::environment_settings(&new.name);
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put(key, document::encode(&settings))
            .put(
                keys::environment_secret(&new.name),
                document::encode(&Secret {
                    secret: secret.clone(),
                }),
            );
        match settle(&*self.store, transaction).await? {
            Settled::Committed => Ok(EnvironmentChanged {
                environment: self.summary(&new.name, settings).await?,
                hook_secret: Some(secret),
            }),
            Settled::Refused(_) => Err(ServiceError::conflict(
                format!("environment `{}` already exists", new.name),
                "change it with `bunraku environment set`",
            )),
        }
    }

    /// Refuses a repository that cannot be read, or that lacks the branch.
    async fn check_repository(&self, url: &str, branch: Option<&str>) -> Result<(), ServiceError> {
        let refused = |message: String, hint: String| ServiceError::Invalid {
            message,
            hint: Some(hint),
        };
        let shown = masked(url);
        let look = tokio::time::timeout(LONGEST_LOOK, self.code.branches(url)).await;
        let branches = match look {
            Ok(Ok(branches)) => branches,
            other => {
                let why = match other {
                    Ok(Err(error)) => error_chain(&error),
                    _ => format!("no answer after {} s", LONGEST_LOOK.as_secs()),
                };
                return Err(refused(
                    format!("cannot read the repository {shown}: {why}"),
                    "check the address, and that the servers may read it; `--no-check` skips this check"
                        .to_owned(),
                ));
            }
        };
        match branch {
            Some(branch) if !branches.heads.contains_key(branch) => {
                let known: Vec<&str> = branches.heads.keys().map(String::as_str).collect();
                Err(refused(
                    format!("the repository {shown} has no branch `{branch}`"),
                    match known.as_slice() {
                        [] => "it has no branches yet; `--no-check` skips this check".to_owned(),
                        known => format!("its branches are: {}", known.join(", ")),
                    },
                ))
            }
            _ => Ok(()),
        }
    }

    /// Changes the given settings. Deployed code stays until the next deploy.
    pub async fn change(
        &self,
        name: &EnvironmentName,
        change: &EnvironmentChange,
    ) -> Result<EnvironmentChanged, ServiceError> {
        check(change.url.as_deref(), change.branch.as_deref())?;
        if let Some(VolatileChange::Facts(paths)) = &change.volatile {
            check_volatile(paths)?;
        }
        let poll = change.poll_seconds.filter(|seconds| *seconds > 0);
        check_poll(poll)?;
        let settings = document::update(
            &*self.store,
            &keys::environment_settings(name),
            |current: Option<EnvironmentSettings>| {
                let mut settings = current.ok_or_else(|| no_such_environment(name))?;
                if let Some(url) = &change.url {
                    settings.url.clone_from(url);
                }
                if let Some(branch) = &change.branch {
                    settings.branch = Some(branch.clone());
                }
                if let Some(policy) = change.policy {
                    settings.policy = policy;
                }
                if change.poll_seconds.is_some() {
                    settings.poll_seconds = poll;
                }
                if let Some(allowed) = change.allow_external_compiler {
                    settings.allows_external_compiler = allowed;
                }
                match &change.volatile {
                    None => {}
                    Some(VolatileChange::Usual) => settings.volatile = None,
                    Some(VolatileChange::Facts(paths)) => settings.volatile = Some(paths.clone()),
                }
                if change.order.is_some() || change.default_order {
                    settings.order = change.order;
                }
                if let Some(decides) = change.fact_targeting {
                    settings.fact_targeting = decides;
                }
                if let Some(approval) = change.approval {
                    settings.approval = (approval.runs || approval.releases).then_some(approval);
                }
                let releases = settings.approval.is_some_and(|approval| approval.releases);
                if releases && settings.policy == bunraku_wire::api::ReleasePolicy::Auto {
                    return Err(ServiceError::Invalid {
                        message: "automatic releases cannot be approved".to_owned(),
                        hint: Some("use `--policy manual`, or `--approval runs`".to_owned()),
                    });
                }
                Ok(Decision::Write(settings))
            },
        )
        .await?;
        let settings = settings.ok_or_else(|| no_such_environment(name))?;
        if change.allow_external_compiler.is_some() {
            // Nodes may have failed without it.
            let nodes = self.compiles.nodes(Some(name)).await?;
            let queue = self.compiles.queue();
            queue.request_all(&nodes, CompileReason::Person).await?;
        }
        let hook_secret = change.new_hook_secret.then(new_secret);
        if let Some(secret) = hook_secret.clone() {
            let transaction = Transaction::new()
                .when(Compare::Exists(keys::environment_settings(name)))
                .put(
                    keys::environment_secret(name),
                    document::encode(&Secret { secret }),
                );
            settle(&*self.store, transaction).await?;
        }
        Ok(EnvironmentChanged {
            environment: self.summary(name, settings).await?,
            hook_secret,
        })
    }

    /// Removes an environment that has no nodes.
    pub async fn remove(&self, name: &EnvironmentName) -> Result<(), ServiceError> {
        self.settings(name).await?;
        let nodes = self.compiles.nodes(Some(name)).await?;
        if let Some((first, _)) = nodes.first() {
            return Err(ServiceError::conflict(
                format!(
                    "environment `{name}` is used by {}, such as `{first}`",
                    match nodes.len() {
                        1 => "1 node".to_owned(),
                        nodes => format!("{nodes} nodes"),
                    }
                ),
                "move them to another one with `bunraku node assign`",
            ));
        }
        self.code.forget(name).await.map_err(code_error)?;
        let transaction = Transaction::new().delete_prefix(keys::environment_prefix(name));
        settle(&*self.store, transaction).await?;
        Ok(())
    }

    /// Returns all environments, by name.
    pub async fn list(&self) -> Result<Vec<EnvironmentSummary>, ServiceError> {
        let mut all = Vec::new();
        for entry in document::read_all(&*self.store, keys::ENVIRONMENTS).await? {
            if let Some((name, "settings")) = keys::parse_environment_key(&entry.key) {
                all.push(self.summary(&name, document::decode(&entry)?).await?);
            }
        }
        Ok(all)
    }

    /// Returns one environment, with its newest deploys and current problems.
    pub async fn show(&self, name: &EnvironmentName) -> Result<EnvironmentDetail, ServiceError> {
        let settings = self.settings(name).await?;
        let deployed = self.deployed(name).await?;
        let code_id = deployed.as_ref().map(|deployed| &deployed.code_id);
        let standing = self.compiles.commit_progress(name, code_id).await?;
        let modules = match code_id {
            None => Vec::new(),
            Some(code_id) => {
                let modules = self.code.modules(name, code_id).await;
                modules.map_err(code_error)?
            }
        };
        let mut deploys = self.deploys(name).await?;
        deploys.reverse();
        deploys.truncate(10);
        Ok(EnvironmentDetail {
            summary: summary(
                name,
                settings,
                deployed,
                self.pin(name).await?,
                standing.progress,
            ),
            deploys,
            failures: standing.failures,
            modules,
        })
    }

    /// Returns the settings that operators chose.
    pub async fn settings(
        &self,
        name: &EnvironmentName,
    ) -> Result<EnvironmentSettings, ServiceError> {
        match EnvironmentSettings::read(&*self.store, name).await? {
            Some(settings) => Ok(settings),
            None => Err(self.unknown(name).await?),
        }
    }

    /// Returns an error that names similar environments, unless the environment exists. One that
    /// was removed exists as long as it has releases.
    pub async fn require(&self, name: &EnvironmentName) -> Result<(), ServiceError> {
        for key in [keys::environment_settings(name), keys::release_head(name)] {
            if self.store.get(&key).await?.is_some() {
                return Ok(());
            }
        }
        Err(self.unknown(name).await?)
    }

    /// Returns the error for an environment that does not exist.
    async fn unknown(&self, name: &EnvironmentName) -> Result<ServiceError, ServiceError> {
        let keys = document::keys_under(&*self.store, keys::ENVIRONMENTS).await?;
        let names: Vec<EnvironmentName> = keys
            .iter()
            .filter_map(|key| match keys::parse_environment_key(key)? {
                (name, "settings") => Some(name),
                _ => None,
            })
            .collect();
        let near = near_names(name.as_str(), names.iter().map(EnvironmentName::as_str));
        Ok(ServiceError::NotFound {
            what: format!("environment `{name}`"),
            hint: Some(match (near.first(), names.is_empty()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, false) => "list them with `bunraku environment list`".to_owned(),
                (None, true) => {
                    "there is none yet; `bunraku environment add -h` shows how to create it"
                        .to_owned()
                }
            }),
        })
    }

    /// Returns the code that its nodes are compiled with.
    pub async fn deployed(
        &self,
        name: &EnvironmentName,
    ) -> Result<Option<DeployedCode>, ServiceError> {
        self.compiles.deployed(name).await
    }

    /// Fetches a commit (or the branch's newest) and stores its files, without
    /// deploying it: for `Compiles::compile_for`.
    pub async fn fetch_commit(
        &self,
        name: &EnvironmentName,
        commit: Option<&str>,
    ) -> Result<CodeId, ServiceError> {
        let settings = self.settings(name).await?;
        if let Some(commit) = commit {
            check_reference(commit).map_err(|error| ServiceError::invalid(error.to_string()))?;
        }
        let fetched = self
            .code
            .fetch(name, &code_request(&settings, commit))
            .await;
        fetched.map_err(code_error)
    }

    /// Assigns a node to an environment, and requests its compile there.
    pub async fn assign(
        &self,
        node: &NodeName,
        environment: &EnvironmentName,
    ) -> Result<(), ServiceError> {
        let key = &keys::node_record(node);
        compare_and_swap(&*self.store, |_| async move {
            self.settings(environment).await?;
            let record = document::read::<NodeRecord>(&*self.store, key).await?;
            let record = record.ok_or_else(|| ServiceError::no_such_node(node))?;
            if record.document.environment == *environment {
                return Ok(Swap::Done(()));
            }
            let mut next = record.document;
            next.environment = environment.clone();
            let request = self.store.get(&keys::compile_request(node)).await?;
            let transaction = Transaction::new()
                .when(Compare::Exists(keys::environment_settings(environment)))
                .when_unchanged(key, Some(&record.entry))
                .put(key, document::encode(&next));
            let transaction = self.compiles.queue().put_in(
                transaction,
                node,
                environment.clone(),
                request.as_ref(),
                CompileReason::Person,
            )?;
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }

    /// Removes commits that are old and unused, and this server's unused copies.
    /// The code in use by releases stays.
    pub async fn prune(
        &self,
        in_use: &BTreeMap<EnvironmentName, BTreeSet<CodeId>>,
    ) -> Result<usize, ServiceError> {
        let mut removed = 0;
        for entry in document::read_all(&*self.store, keys::ENVIRONMENTS).await? {
            if let Some((name, "settings")) = keys::parse_environment_key(&entry.key) {
                let deployed = self.deployed(&name).await?;
                let mut kept = in_use.get(&name).cloned().unwrap_or_default();
                kept.extend(deployed.map(|deployed| deployed.code_id));
                let pruned = self.code.prune(&name, &kept).await;
                removed += pruned.map_err(code_error)?;
            }
        }
        removed += self.code.remove_unused_copies().await.map_err(code_error)?;
        Ok(removed)
    }

    async fn summary(
        &self,
        name: &EnvironmentName,
        settings: EnvironmentSettings,
    ) -> Result<EnvironmentSummary, ServiceError> {
        let deployed = self.deployed(name).await?;
        let code_id = deployed.as_ref().map(|deployed| &deployed.code_id);
        let standing = self.compiles.commit_progress(name, code_id).await?;
        let pin = self.pin(name).await?;
        Ok(summary(name, settings, deployed, pin, standing.progress))
    }
}

fn summary(
    name: &EnvironmentName,
    settings: EnvironmentSettings,
    deployed: Option<DeployedCode>,
    pin: Option<EnvironmentPin>,
    progress: bunraku_wire::api::CompileProgress,
) -> EnvironmentSummary {
    EnvironmentSummary {
        name: name.clone(),
        url: masked(&settings.url),
        branch: settings.branch,
        policy: settings.policy,
        approval: settings.approval,
        volatile: settings.volatile,
        order: settings.order,
        repository: settings.repository,
        poll_seconds: settings.poll_seconds,
        allows_external_compiler: settings.allows_external_compiler,
        fact_targeting: settings.fact_targeting,
        deployed,
        pin,
        progress,
    }
}

fn code_request(settings: &EnvironmentSettings, commit: Option<&str>) -> CodeRequest {
    CodeRequest {
        url: settings.url.clone(),
        wanted: match (commit, &settings.branch) {
            (Some(commit), _) => FetchScope::Reference(commit.to_owned()),
            (None, Some(branch)) => FetchScope::Branch(branch.clone()),
            (None, None) => FetchScope::DefaultBranch,
        },
        branch: settings.branch.clone(),
    }
}

fn check(url: Option<&str>, branch: Option<&str>) -> Result<(), ServiceError> {
    let checked = url
        .map_or(Ok(()), check_url)
        .and_then(|()| branch.map_or(Ok(()), check_branch));
    checked.map_err(|error| ServiceError::Invalid {
        message: error.to_string(),
        hint: Some(
            "write `https://…`, `ssh://…`, `user@host:path`, `file:///…` or an absolute path"
                .to_owned(),
        ),
    })
}

/// Returns an error with all of its causes, on one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Checks an interval between polls.
pub(crate) fn check_poll(seconds: Option<u64>) -> Result<(), ServiceError> {
    match seconds {
        Some(seconds) if seconds < SHORTEST_POLL => Err(ServiceError::invalid(format!(
            "the interval of {seconds} s is too short: at least {SHORTEST_POLL} s"
        ))),
        _ => Ok(()),
    }
}

/// Checks that the paths can name a fact.
fn check_volatile(paths: &[String]) -> Result<(), ServiceError> {
    let is_path = |path: &&String| path.split('.').all(|step| !step.is_empty());
    match paths.iter().find(|path| !is_path(path)) {
        None => Ok(()),
        Some(path) => Err(ServiceError::Invalid {
            message: format!("`{path}` is not the path of a fact"),
            hint: Some(
                "write dotted paths, with `*` for any key: `memory.*.available_bytes`".to_owned(),
            ),
        }),
    }
}

pub fn no_such_environment(name: &EnvironmentName) -> ServiceError {
    ServiceError::NotFound {
        what: format!("environment `{name}`"),
        hint: Some("list them with `bunraku environment list`".to_owned()),
    }
}

fn code_error(error: CodeError) -> ServiceError {
    match error {
        CodeError::Service(error) => error,
        lasting if lasting.is_lasting() => {
            let problem = lasting.into_problem();
            let place = match (problem.file, problem.line) {
                (Some(file), Some(line)) => format!("{file}:{line}: "),
                (Some(file), None) => format!("{file}: "),
                _ => String::new(),
            };
            ServiceError::Invalid {
                message: format!("{place}{}", problem.message),
                hint: problem.hint,
            }
        }
        other => ServiceError::internal("cannot use the code", other),
    }
}
