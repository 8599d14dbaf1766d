//! Nodes that joined after a release: each gets a catalog of the code that its
//! join rule names.
//!
//! If its compiled catalog is of other code, the node is compiled from the
//! rule's code as well. The leader starts these compiles ([`JoinCompiles`]) and
//! does not wait for them: a release must not be delayed by them.
//!
//! A hold does not stop this. It keeps code from changing; a node that joins
//! gets the code that is released already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeName, ReleaseNumber};
use bunraku_wire::api::{ReleaseKind, RunMode};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::compiled_catalogs::HeldCatalogs;
use super::create::{Proposal, ProposalOutcome, next_number};
use super::document::{JoinOutcome, MapEntry};
use super::join_rules::JoinRule;
use super::{Releases, number_of};
use crate::catalogs::NewCatalog;
use crate::compile_failure::CompileFailure;
use crate::compiles::{CompileFailed, Compiles};
use crate::targets::StoredTarget;
use bunraku_control::error::chain;
use bunraku_control::{ServiceError, document, keys};

/// Number of nodes compiled concurrently for this purpose.
const AT_ONCE: usize = 4;
/// Delay before a compile that failed for a passing reason is retried.
const RETRY: Duration = Duration::from_secs(1);
/// Delay before code that does not compile is tried again, the first time.
const FIRST_RETRY: Duration = Duration::from_secs(60);
/// Maximum number of problems that are stored for display.
const MOST_PROBLEMS: usize = 100;
/// Maximum length of a stored problem.
const LONGEST_PROBLEM: usize = 500;

/// The reason why a node cannot be compiled from some code.
#[derive(Debug, thiserror::Error)]
pub enum CompileAtCodeError {
    /// The code or the node's data is at fault.
    #[error("{0}")]
    Problem(String),
    #[error("cannot compile now: {0}")]
    Temporary(String),
}

/// Compiles nodes from code that need not be deployed.
#[async_trait]
pub trait CompileAtCode: Send + Sync + 'static {
    /// Compiles a node and stores the catalog, which stays for its grace period.
    async fn compile_at(
        &self,
        environment: &EnvironmentName,
        node: &NodeName,
        code_id: &CodeId,
    ) -> Result<CatalogId, CompileAtCodeError>;
}

#[async_trait]
impl CompileAtCode for Compiles {
    async fn compile_at(
        &self,
        environment: &EnvironmentName,
        node: &NodeName,
        code_id: &CodeId,
    ) -> Result<CatalogId, CompileAtCodeError> {
        let made = self.compile_for(node, code_id).await?;
        if made.environment != *environment {
            let message = format!("the node is in `{}` now", made.environment);
            return Err(CompileAtCodeError::Problem(message));
        }
        let new = NewCatalog {
            node: node.clone(),
            environment: made.environment,
            code_id: made.code_id,
            catalog: made.catalog,
            files: made.files,
        };
        let stored = self.catalogs().put(&new).await;
        let (id, _) = stored.map_err(|error| CompileAtCodeError::Temporary(chain(&error)))?;
        Ok(id)
    }
}

impl From<CompileFailure> for CompileAtCodeError {
    fn from(failure: CompileFailure) -> Self {
        match failure {
            CompileFailure::Problems(problems) => {
                let first = problems.into_iter().next().unwrap_or_default();
                Self::Problem(first.message)
            }
            CompileFailure::WorkerDied(message) => Self::Problem(message),
            CompileFailure::Temporary(error) => Self::Temporary(chain(&*error)),
        }
    }
}

/// A node to compile from the code of its join rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct JoinCompile {
    pub(super) environment: EnvironmentName,
    pub(super) node: NodeName,
    pub(super) code_id: CodeId,
}

struct FailedJoin {
    compile: JoinCompile,
    /// Nothing if it failed for a passing reason.
    problem: Option<String>,
    failures: u32,
    retry: Instant,
}

/// The state of a requested compile.
pub(super) enum JoinCompileState {
    Ready(CatalogId),
    Failed(String),
    Pending,
}

type CompileResult = (JoinCompile, Result<CatalogId, CompileAtCodeError>);

/// The compiles that the leader requested.
#[derive(Default)]
pub(super) struct JoinCompiles {
    waiting: BTreeMap<NodeName, JoinCompile>,
    running: BTreeMap<NodeName, JoinCompile>,
    tasks: JoinSet<CompileResult>,
    ready: BTreeMap<NodeName, (JoinCompile, CatalogId)>,
    failed: BTreeMap<NodeName, FailedJoin>,
}

impl JoinCompiles {
    /// Returns the state of a compile; requests it if necessary.
    pub(super) fn request(&mut self, compile: JoinCompile, now: Instant) -> JoinCompileState {
        let node = &compile.node;
        if let Some((known, catalog)) = self.ready.get(node)
            && *known == compile
        {
            return JoinCompileState::Ready(*catalog);
        }
        if let Some(failed) = self.failed.get(node)
            && failed.compile == compile
            && failed.retry > now
        {
            return match &failed.problem {
                Some(problem) => JoinCompileState::Failed(problem.clone()),
                None => JoinCompileState::Pending,
            };
        }
        if self.running.get(node) != Some(&compile) {
            self.waiting.insert(node.clone(), compile);
        }
        JoinCompileState::Pending
    }

    /// Starts as many of the requested compiles as may run concurrently.
    pub(super) fn start(&mut self, compiler: &Arc<dyn CompileAtCode>) {
        while self.running.len() < AT_ONCE {
            let mut nodes = self.waiting.keys();
            let next = nodes.find(|node| !self.running.contains_key(*node));
            let Some(compile) = (next.cloned()).and_then(|node| self.waiting.remove(&node)) else {
                return;
            };
            self.running.insert(compile.node.clone(), compile.clone());
            let compiler = Arc::clone(compiler);
            self.tasks.spawn(async move {
                let JoinCompile {
                    environment,
                    node,
                    code_id,
                } = &compile;
                let made = compiler.compile_at(environment, node, code_id).await;
                (compile, made)
            });
        }
    }

    /// Waits for the end of a compile, and returns its environment.
    pub(super) async fn ended(&mut self) -> Option<EnvironmentName> {
        let ended = match self.tasks.join_next().await {
            None => return std::future::pending().await,
            Some(ended) => ended,
        };
        let (compile, made) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(error = %error, "a compile task crashed");
                if self.tasks.is_empty() {
                    self.running.clear();
                }
                return None;
            }
        };
        self.running.remove(&compile.node);
        let environment = compile.environment.clone();
        match made {
            Ok(catalog) => {
                self.failed.remove(&compile.node);
                self.ready.insert(compile.node.clone(), (compile, catalog));
            }
            Err(error) => self.record_failure(compile, error),
        }
        Some(environment)
    }

    fn record_failure(&mut self, compile: JoinCompile, error: CompileAtCodeError) {
        let (node, code) = (&compile.node, compile.code_id.short());
        tracing::warn!(%node, code, error = %error, "cannot compile a node from the code of its release");
        let before = self.failed.remove(node);
        let failures = before.map_or(0, |before| before.failures);
        let (problem, delay) = match error {
            CompileAtCodeError::Temporary(_) => (None, RETRY),
            CompileAtCodeError::Problem(text) => {
                (Some(text), FIRST_RETRY * 2_u32.pow(failures.min(5)))
            }
        };
        let failed = FailedJoin {
            problem,
            failures: failures + 1,
            retry: Instant::now() + delay,
            compile,
        };
        self.failed.insert(failed.compile.node.clone(), failed);
    }

    /// Returns true if no compile is running.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Returns the time of the next retry in an environment.
    pub(super) fn retry(&self, environment: &EnvironmentName) -> Option<Instant> {
        let failed = self.failed.values();
        let failed = failed.filter(|failed| failed.compile.environment == *environment);
        failed.map(|failed| failed.retry).min()
    }

    /// Forgets the results of a node, because its data changed.
    pub(super) fn forget(&mut self, node: &NodeName) {
        self.waiting.remove(node);
        self.ready.remove(node);
        self.failed.remove(node);
    }

    /// Forgets requests and failures of nodes that need no compile any more.
    pub(super) fn retain(&mut self, environment: &EnvironmentName, nodes: &BTreeSet<NodeName>) {
        let needed = |compile: &JoinCompile| {
            compile.environment != *environment || nodes.contains(&compile.node)
        };
        self.waiting.retain(|_, compile| needed(compile));
        self.ready.retain(|_, (compile, _)| needed(compile));
        self.failed.retain(|_, failed| needed(&failed.compile));
    }
}

/// The nodes of an environment, as compiles left them.
pub(super) struct CompiledNodes<'a> {
    pub(super) held: &'a HeldCatalogs,
    /// Nodes that never compiled in the environment.
    pub(super) failed: BTreeMap<&'a NodeName, &'a CompileFailed>,
    /// Nodes that were compiled here for the first time since this leader
    /// started. An entry in the map may be of a former node of the same name.
    pub(super) appeared: &'a BTreeSet<NodeName>,
}

/// The result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JoinStep {
    /// Every node has its catalog or a problem, or waits for a compile.
    Done,
    /// Some nodes got their catalogs: apply, and check again.
    Released,
    /// Something changed in between: check again.
    Overtaken,
}

/// What the rules say about the nodes without a catalog.
#[derive(Default)]
struct JoinDecisions {
    /// By the release whose rule covers them.
    entries: BTreeMap<ReleaseNumber, (RunMode, Vec<(NodeName, MapEntry)>)>,
    problems: BTreeMap<NodeName, String>,
    is_pending: bool,
}

impl Releases {
    /// Gives catalogs to nodes that have none, as the join rules say.
    pub(super) async fn join(
        &self,
        environment: &EnvironmentName,
        nodes: &CompiledNodes<'_>,
        compiles: &mut JoinCompiles,
    ) -> Result<JoinStep, ServiceError> {
        let head = self.head(environment).await?;
        let (Some(newest), map) = self.newest_map(environment, &head).await? else {
            return Ok(JoinStep::Done);
        };
        let mut map = self.present(environment, map, nodes.held).await?;
        let rules = self.rules_of(environment, Some(&newest)).await?;
        let mut has_outdated = false;
        for node in nodes.appeared {
            let is_named = map.get(node).is_some_and(|entry| entry.catalog.is_some());
            if is_named && self.is_without_target(environment, node).await? {
                map.remove(node);
                has_outdated = true;
            }
        }
        let candidates: BTreeSet<NodeName> = (nodes.held.keys())
            .chain(nodes.failed.keys().copied())
            .filter(|node| map.get(*node).is_none_or(|entry| entry.catalog.is_none()))
            .cloned()
            .collect();
        compiles.retain(environment, &candidates);
        let matches = if candidates.is_empty() {
            BTreeMap::new()
        } else {
            self.query_matches(&rules).await?
        };
        let mut decisions = JoinDecisions::default();
        for node in &candidates {
            if let Some(rule) = rules.rule_for(environment, node, &matches) {
                decisions.decide(environment, node, rule, nodes, compiles, next_number(&head));
            }
        }
        let mut next = decisions.entries.pop_first();
        if has_outdated && next.is_none() {
            let rule = rules.rules.first();
            let rule_of = rule.map_or(number_of(&head), |rule| rule.release);
            next = Some((rule_of, (RunMode::Enforce, Vec::new())));
        }
        let Some((rule_of, (mode, entries))) = next else {
            let is_done = !decisions.is_pending;
            let outcome = is_done.then(|| JoinOutcome::of(decisions.problems));
            let stored = head.as_ref().map(|head| &head.entry);
            if let Some(head_entry) = stored {
                let number = number_of(&head);
                self.note_joins(environment, head_entry, number, outcome)
                    .await?;
            }
            return Ok(JoinStep::Done);
        };
        let catalogs: Vec<(NodeName, CatalogId)> = (entries.iter())
            .filter_map(|(node, entry)| Some((node.clone(), entry.catalog?)))
            .collect();
        map.extend(entries);
        let proposal = Proposal {
            map,
            join_rules: rules.clone(),
            kind: ReleaseKind::Added { rule_of },
            mode,
            by: "bunraku".to_owned(),
            reason: None,
            hold: None,
        };
        let known = Some((newest.map, rules));
        match self.propose(environment, &head, known, proposal).await? {
            ProposalOutcome::Released(release) => {
                tracing::info!(%environment, release = %release.number, nodes = catalogs.len(), "released to nodes that joined");
                Ok(JoinStep::Released)
            }
            ProposalOutcome::NothingToDo => Ok(JoinStep::Done),
            ProposalOutcome::Overtaken => {
                for (node, catalog) in catalogs {
                    // It may have waited longer than its grace period.
                    if self.catalogs.record(catalog).await?.is_none() {
                        compiles.forget(&node);
                    }
                }
                Ok(JoinStep::Overtaken)
            }
        }
    }
}

impl Releases {
    /// Returns true if the node has no target in this environment.
    async fn is_without_target(
        &self,
        environment: &EnvironmentName,
        node: &NodeName,
    ) -> Result<bool, ServiceError> {
        let key = keys::target(node);
        let target = document::read::<StoredTarget>(&*self.store, &key).await?;
        Ok(target.is_none_or(|known| known.document.target.environment != *environment))
    }
}

impl JoinDecisions {
    fn decide(
        &mut self,
        environment: &EnvironmentName,
        node: &NodeName,
        rule: &JoinRule,
        nodes: &CompiledNodes<'_>,
        compiles: &mut JoinCompiles,
        next: ReleaseNumber,
    ) {
        let held = nodes.held.get(node);
        let catalog = match held.filter(|held| held.code_id == rule.code_id) {
            Some(held) => held.catalog,
            None => {
                let failed = nodes.failed.get(node);
                if let Some(failed) = failed.filter(|failed| failed.code_id == rule.code_id) {
                    let problem = failed.problems.first();
                    let text = problem.map_or("it does not compile", |problem| &problem.message);
                    self.problems.insert(node.clone(), text.to_owned());
                    return;
                }
                let compile = JoinCompile {
                    environment: environment.clone(),
                    node: node.clone(),
                    code_id: rule.code_id.clone(),
                };
                match compiles.request(compile, Instant::now()) {
                    JoinCompileState::Ready(catalog) => catalog,
                    JoinCompileState::Failed(problem) => {
                        self.problems.insert(node.clone(), problem);
                        return;
                    }
                    JoinCompileState::Pending => {
                        self.is_pending = true;
                        return;
                    }
                }
            }
        };
        let entry = MapEntry {
            catalog: Some(catalog),
            mode: rule.mode,
            since: next,
            code_id: Some(rule.code_id.clone()),
        };
        let group = self.entries.entry(rule.release);
        let (_, entries) = group.or_insert_with(|| (rule.mode, Vec::new()));
        entries.push((node.clone(), entry));
    }
}

impl JoinOutcome {
    fn of(problems: BTreeMap<NodeName, String>) -> Self {
        let problems = problems.into_iter().take(MOST_PROBLEMS);
        let shortened = problems.map(|(node, text)| {
            let text = text.chars().take(LONGEST_PROBLEM).collect();
            (node, text)
        });
        Self {
            problems: shortened.collect(),
        }
    }
}
