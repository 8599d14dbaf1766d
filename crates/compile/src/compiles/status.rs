//! Pending compiles, compile results, and the progress of an environment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bunraku_model::{CodeId, EnvironmentName, NodeName};
use bunraku_store::{Swap, Transaction, compare_and_swap};
use bunraku_wire::api::reactors::Reactor;
use bunraku_wire::api::{
    CompileOutcome, CompileProblem, CompileProgress, CompileReason, CompileSelection,
    CompileStatus, FailureGroup, LastCompile, QueuedCompile,
};
use tokio::time::Instant;

use super::claim::ClaimDocument;
use super::queue::QueueEntry;
use super::{CompileFailed, CompiledCatalog, Compiles, holder};
use bunraku_control::document;
use bunraku_control::nodes::NodeRecord;
use bunraku_control::{ServiceError, keys};

/// Minimum interval between two checks of a wait.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of an environment's nodes relative to one commit.
#[derive(Clone, Debug, Default)]
pub struct CommitProgress {
    pub progress: CompileProgress,
    pub failures: Vec<FailureGroup>,
}

/// What the files of a commit say about it.
pub(crate) struct InspectedCompiler {
    /// The compiler's name.
    pub(crate) compiler: String,
    pub(crate) reactors: Result<Vec<Reactor>, CompileProblem>,
}

impl Compiles {
    /// Adds nodes to the queue because a user asked.
    pub async fn request(
        &self,
        selection: &CompileSelection,
    ) -> Result<Vec<NodeName>, ServiceError> {
        let nodes = match selection {
            CompileSelection::Nodes(nodes) => {
                let mut found = Vec::new();
                for node in nodes {
                    found.push((node.clone(), self.environment_of(node).await?));
                }
                found
            }
            CompileSelection::All => self.nodes(None).await?,
            CompileSelection::Environment(environment) => self.nodes(Some(environment)).await?,
        };
        let queue = &self.inner.queue;
        queue.request_all(&nodes, CompileReason::Person).await?;
        Ok(nodes.into_iter().map(|(node, _)| node).collect())
    }

    /// Returns all nodes with their environments, or only those of one environment.
    pub async fn nodes(
        &self,
        only: Option<&EnvironmentName>,
    ) -> Result<Vec<(NodeName, EnvironmentName)>, ServiceError> {
        let mut nodes = Vec::new();
        for entry in document::read_all(&*self.inner.store, keys::NODES).await? {
            let Some((node, "record")) = keys::parse_node_key(&entry.key) else {
                continue;
            };
            let NodeRecord { environment, .. } = document::decode(&entry)?;
            if only.is_none_or(|only| *only == environment) {
                nodes.push((node, environment));
            }
        }
        Ok(nodes)
    }

    /// Returns the pending compiles, in queue order.
    pub async fn waiting(&self) -> Result<Vec<QueuedCompile>, ServiceError> {
        let store = &*self.inner.store;
        let mut claims = BTreeMap::new();
        for entry in document::read_all(store, keys::COMPILE_CLAIMS).await? {
            if let Some(node) = keys::parse_node_below(keys::COMPILE_CLAIMS, &entry.key) {
                claims.insert(node, document::decode::<ClaimDocument>(&entry)?.started);
            }
        }
        let mut entries: Vec<(NodeName, QueueEntry)> =
            self.inner.queue.entries().await?.into_iter().collect();
        entries.sort_by_key(|(node, entry)| {
            let place = (entry.priority(), entry.since);
            (!claims.contains_key(node), place)
        });
        Ok(entries
            .into_iter()
            .map(|(node, entry)| QueuedCompile {
                started: claims.get(&node).copied(),
                node,
                environment: entry.environment,
                reasons: entry.reasons,
                since: entry.since,
                requested: entry.requested,
            })
            .collect())
    }

    /// Returns the compile results of these nodes. Waits until none of them is
    /// in the queue, up to the time limit.
    pub async fn statuses(
        &self,
        nodes: &[NodeName],
        wait: Duration,
    ) -> Result<Vec<CompileStatus>, ServiceError> {
        let deadline = Instant::now() + wait;
        loop {
            let mut changes = self.inner.changes.subscribe();
            let mut statuses = Vec::with_capacity(nodes.len());
            for node in nodes {
                statuses.push(self.status(node).await?);
            }
            if !statuses.iter().any(|status| status.waiting)
                || !next_look(&mut changes, deadline).await
            {
                return Ok(statuses);
            }
        }
    }

    async fn status(&self, node: &NodeName) -> Result<CompileStatus, ServiceError> {
        let store = &*self.inner.store;
        let waiting = store.get(&keys::compile_request(node)).await?.is_some();
        let last = document::read::<LastCompile>(store, &keys::compile_status(node)).await?;
        if last.is_none() && !waiting && store.get(&keys::node_record(node)).await?.is_none() {
            return Err(ServiceError::no_such_node(node));
        }
        Ok(CompileStatus {
            node: node.clone(),
            waiting,
            last: last.map(|last| last.document),
        })
    }

    /// Returns the newest good catalog of a node.
    pub async fn compiled(&self, node: &NodeName) -> Result<Option<CompiledCatalog>, ServiceError> {
        let found = document::read(&*self.inner.store, &keys::compiled(node)).await?;
        Ok(found.map(|found| found.document))
    }

    /// Returns the progress of an environment's nodes with a commit.
    pub async fn commit_progress(
        &self,
        environment: &EnvironmentName,
        code_id: Option<&CodeId>,
    ) -> Result<CommitProgress, ServiceError> {
        let store = &*self.inner.store;
        let nodes = self.nodes(Some(environment)).await?;
        let waiting: BTreeSet<String> = document::keys_under(store, keys::COMPILE_QUEUE)
            .await?
            .into_iter()
            .collect();
        let mut last: BTreeMap<String, LastCompile> = BTreeMap::new();
        for entry in document::read_all(store, keys::COMPILE_STATUS).await? {
            last.insert(entry.key.clone(), document::decode(&entry)?);
        }
        let mut standing = CommitProgress::default();
        let mut failures: BTreeMap<Vec<CompileProblem>, Vec<NodeName>> = BTreeMap::new();
        standing.progress.nodes = nodes.len();
        for (node, _) in nodes {
            if waiting.contains(&keys::compile_request(&node)) {
                standing.progress.waiting += 1;
                continue;
            }
            let last = last.get(&keys::compile_status(&node));
            let last = last.filter(|last| last.code_id.as_ref() == code_id);
            match last.map(|last| &last.outcome) {
                Some(CompileOutcome::Compiled { .. }) => standing.progress.compiled += 1,
                Some(CompileOutcome::NoFacts) => standing.progress.without_facts += 1,
                Some(CompileOutcome::Failed {
                    problems,
                    quarantined,
                }) => {
                    standing.progress.failed += 1;
                    standing.progress.quarantined += usize::from(*quarantined);
                    failures.entry(problems.clone()).or_default().push(node);
                }
                Some(CompileOutcome::NoCode) | None => {}
            }
        }
        if let Some(code_id) = code_id {
            standing.failures = grouped(failures, code_id);
        }
        Ok(standing)
    }

    /// Waits for a change of the queue. Returns false when the time is over.
    pub async fn queue_changed(
        &self,
        changes: &mut tokio::sync::watch::Receiver<u64>,
        deadline: Instant,
    ) -> bool {
        next_look(changes, deadline).await
    }

    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Removes all compile data of a node that is about to be removed.
    pub async fn forget(&self, node: &NodeName) -> Result<(), ServiceError> {
        let store = &*self.inner.store;
        compare_and_swap(store, |_| async {
            let key = keys::compiled(node);
            let known = document::read::<CompiledCatalog>(store, &key).await?;
            let mut transaction = Transaction::new()
                .when_unchanged(&key, known.as_ref().map(|known| &known.entry))
                .delete(key)
                .delete(keys::compile_request(node))
                .delete(keys::compile_claim(node))
                .delete(keys::compile_attempt(node))
                .delete(keys::compile_status(node))
                .delete(keys::compile_reads(node))
                .delete(keys::compile_error(node));
            if let Some(known) = known {
                let catalog = known.document.catalog;
                let catalogs = &self.inner.catalogs;
                transaction = catalogs.release_in(transaction, catalog, &holder(node));
            }
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }

    /// Prepares the compiler of a commit, and returns what its files say.
    pub(crate) async fn inspected(
        &self,
        environment: &EnvironmentName,
        code_id: &CodeId,
    ) -> Result<InspectedCompiler, super::CompileFailure> {
        let ready = self.inner.compilers.get(environment, code_id).await?;
        Ok(InspectedCompiler {
            compiler: ready.compiler.name().to_owned(),
            reactors: ready.reactors.clone(),
        })
    }

    /// Returns the newest failure of a node.
    pub async fn failure(&self, node: &NodeName) -> Result<Option<CompileFailed>, ServiceError> {
        let found = document::read(&*self.inner.store, &keys::compile_error(node)).await?;
        Ok(found.map(|found| found.document))
    }
}

/// Groups problems; those that affect the most nodes come first.
fn grouped(
    failures: BTreeMap<Vec<CompileProblem>, Vec<NodeName>>,
    code_id: &CodeId,
) -> Vec<FailureGroup> {
    let mut groups: Vec<FailureGroup> = failures
        .into_iter()
        .map(|(problems, nodes)| FailureGroup {
            code_id: code_id.clone(),
            problems,
            nodes,
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.nodes.len()));
    groups
}

async fn next_look(changes: &mut tokio::sync::watch::Receiver<u64>, deadline: Instant) -> bool {
    tokio::select! {
        () = tokio::time::sleep_until(deadline) => false,
        changed = changes.changed() => {
            // Changes come in bursts: check once after each burst.
            tokio::time::sleep(PAUSE).await;
            changed.is_ok()
        }
    }
}
