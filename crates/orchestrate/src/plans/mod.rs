//! Plans on a server: the work of each node, whether a plan is still valid, and the catalogs that
//! runs keep.
//!
//! A plan names the work of every node: exactly one catalog, or the node's own run method. [`Plans`]
//! fills it in ([`Plans::review`]), compares it with what the nodes would do now (`stale`), and
//! holds the catalogs of a run, so that they exist for as long as the run can be resumed (`pins`).
//!
//! Absent: the order of nodes (`plan`, pure), and the run itself (`orchestration`).

mod outputs;
mod pins;
mod stale;

pub(crate) use stale::PlanPurpose;
use std::collections::BTreeMap;

use bunraku_compile::CatalogDiffs;
use bunraku_compile::Releases;
use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::compiles::CompiledCatalog;
use bunraku_compile::targets::StoredTarget;
use bunraku_control::presence::StoredConnection;
use bunraku_control::reports::Reports;
use bunraku_control::{Facts, ServiceError, document, keys};
use bunraku_model::{EnvironmentName, NodeName, ReleaseNumber};
use bunraku_plan::run::OrderedRunSubject;
use bunraku_plan::{PlanReview, PlannedCatalog, PlannedWork, RunPlan};
use bunraku_store::SharedStore;
use bunraku_wire::api::{RunMode, Target};
use futures::{StreamExt, TryStreamExt, stream};

/// Number of nodes read concurrently.
const AT_ONCE: usize = 32;

/// The handle on the plans of a server.
#[derive(Clone)]
pub struct Plans {
    store: SharedStore,
    reports: Reports,
    releases: Releases,
    catalogs: Catalogs,
    diffs: CatalogDiffs,
    facts: Option<Facts>,
}

/// The catalogs of the release that a plan requests, if it requests one.
type RequestedCatalogs = Option<BTreeMap<NodeName, PlannedCatalog>>;

impl Plans {
    pub fn new(
        store: SharedStore,
        reports: Reports,
        releases: Releases,
        catalogs: Catalogs,
        diffs: CatalogDiffs,
    ) -> Self {
        Self {
            store,
            reports,
            releases,
            catalogs,
            diffs,
            facts: None,
        }
    }

    /// Lets plans form batches by a fact.
    #[must_use]
    pub fn with_facts(mut self, facts: Facts) -> Self {
        self.facts = Some(facts);
        self
    }

    /// Completes a plan with the work of every node, and compares it with what the nodes applied
    /// last. With `held`, uses the newest compiled catalogs instead of the released ones.
    pub async fn review(&self, plan: RunPlan, held: bool) -> Result<PlanReview, ServiceError> {
        let mut plan = self.bind(plan, held).await?;
        let unregistered = self.unregistered(&plan).await?;
        plan.warnings.extend(unregistered);
        let mut pairs = Vec::new();
        let mut unreleased = Vec::new();
        for (node, planned) in planned_catalogs(&plan) {
            if !held && self.has_unreleased(node, planned).await? {
                unreleased.push(node.clone());
            }
            let applied = self.reports.newest_applied(node).await?;
            let applied = applied.and_then(|head| head.started.catalog);
            let before = match applied {
                Some(applied) if self.catalogs.record(applied).await?.is_some() => Some(applied),
                _ => None,
            };
            pairs.push((node.clone(), before, Some(planned.catalog)));
        }
        Ok(PlanReview {
            changes: self.diffs.fleet(pairs).await?,
            held: unreleased,
            plan,
        })
    }

    /// Fills in the work of every step, as it is now.
    pub(crate) async fn bind(
        &self,
        mut plan: RunPlan,
        held: bool,
    ) -> Result<RunPlan, ServiceError> {
        let work = self.work_now(&plan, held).await?;
        for step in &mut plan.steps {
            step.work = work.get(&step.node).cloned();
        }
        self.form_batches(&mut plan).await?;
        plan.id = plan.identity();
        Ok(plan)
    }

    /// Fills in the batch of every step: the value of the fact that the options name.
    async fn form_batches(&self, plan: &mut RunPlan) -> Result<(), ServiceError> {
        let (Some(path), Some(facts)) = (plan.options.batch_by.clone(), &self.facts) else {
            return Ok(());
        };
        let path = path.strip_prefix("facts.").unwrap_or(&path);
        let nodes: Vec<NodeName> = plan.nodes().into_keys().cloned().collect();
        let values: BTreeMap<NodeName, String> = stream::iter(nodes)
            .map(|node| async move {
                let value = match facts.show(&node).await {
                    Ok(reply) => batch_of(
                        &serde_json::to_value(&reply.facts).unwrap_or_default(),
                        path,
                    ),
                    // A node without facts is in the batch without a name.
                    Err(ServiceError::NotFound { .. }) => None,
                    Err(error) => return Err(error),
                };
                Ok::<_, ServiceError>((node, value.unwrap_or_default()))
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        for step in &mut plan.steps {
            step.batch = values.get(&step.node).cloned();
        }
        Ok(())
    }

    /// Returns the work of every node of a plan, as it is now.
    async fn work_now(
        &self,
        plan: &RunPlan,
        held: bool,
    ) -> Result<BTreeMap<NodeName, PlannedWork>, ServiceError> {
        let requested = self.requested_catalogs(plan).await?;
        let nodes: Vec<NodeName> = plan.nodes().into_keys().cloned().collect();
        stream::iter(nodes)
            .map(|node| {
                let (subject, requested) = (&plan.subject, &requested);
                async move {
                    let work = self.work_of(&node, subject, requested, held).await?;
                    Ok::<_, ServiceError>((node, work))
                }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    async fn work_of(
        &self,
        node: &NodeName,
        subject: &OrderedRunSubject,
        requested: &RequestedCatalogs,
        held: bool,
    ) -> Result<PlannedWork, ServiceError> {
        if let Some(requested) = requested {
            let planned = requested.get(node).cloned();
            return Ok(planned.map_or(PlannedWork::Nothing, PlannedWork::Catalog));
        }
        if let OrderedRunSubject::Configured { environment } = subject {
            let key = keys::node_connection(node);
            let connection = document::read::<StoredConnection>(&*self.store, &key).await?;
            let method = connection.and_then(|connection| connection.document.run_method);
            if let Some(method) = method.filter(|method| !method.applies_released) {
                return Ok(PlannedWork::Method {
                    method: method.name,
                    environment: environment.clone(),
                });
            }
        }
        let mut planned = self.target(node).await?.map(PlannedCatalog::from);
        if held && let Some(compiled) = self.compiled(node).await? {
            let is_released = |planned: &PlannedCatalog| planned.catalog == compiled.catalog;
            if !planned.as_ref().is_some_and(is_released) {
                planned = Some(PlannedCatalog {
                    catalog: compiled.catalog,
                    environment: compiled.environment,
                    release: ReleaseNumber(0),
                    code_id: Some(compiled.code_id),
                    mode: RunMode::Enforce,
                });
            }
        }
        Ok(planned.map_or(PlannedWork::Nothing, PlannedWork::Catalog))
    }

    async fn requested_catalogs(&self, plan: &RunPlan) -> Result<RequestedCatalogs, ServiceError> {
        let OrderedRunSubject::Release { release } = plan.subject else {
            return Ok(None);
        };
        let environment = EnvironmentName::new(plan.environment.clone())
            .map_err(|error| ServiceError::invalid(error.to_string()))?;
        let (_, map) = self.releases.with_map(&environment, Some(release)).await?;
        let planned = map.into_iter().map(|(node, entry)| {
            let planned = PlannedCatalog {
                catalog: entry.catalog,
                environment: environment.clone(),
                release: entry.since,
                code_id: entry.code_id,
                mode: entry.mode,
            };
            (node, planned)
        });
        Ok(Some(planned.collect()))
    }

    async fn target(&self, node: &NodeName) -> Result<Option<Target>, ServiceError> {
        let key = keys::target(node);
        let stored = document::read::<StoredTarget>(&*self.store, &key).await?;
        Ok(stored.map(|stored| stored.document.target))
    }

    async fn compiled(&self, node: &NodeName) -> Result<Option<CompiledCatalog>, ServiceError> {
        let key = keys::compiled(node);
        let stored = document::read::<CompiledCatalog>(&*self.store, &key).await?;
        Ok(stored.map(|stored| stored.document))
    }

    async fn has_unreleased(
        &self,
        node: &NodeName,
        planned: &PlannedCatalog,
    ) -> Result<bool, ServiceError> {
        let compiled = self.compiled(node).await?;
        Ok(compiled.is_some_and(|compiled| compiled.catalog != planned.catalog))
    }
}

/// Returns the catalog of each node that applies one.
fn planned_catalogs(plan: &RunPlan) -> BTreeMap<&NodeName, &PlannedCatalog> {
    let steps = plan.steps.iter();
    let planned = steps.filter_map(|step| Some((&step.node, step.work.as_ref()?.catalog()?)));
    planned.collect()
}

/// Returns the value of a fact as the name of a batch.
fn batch_of(facts: &serde_json::Value, path: &str) -> Option<String> {
    let mut value = facts;
    for part in path.split('.') {
        value = value.get(part)?;
    }
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Null => None,
        other => Some(other.to_string()),
    }
}
