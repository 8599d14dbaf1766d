//! A run that applies the node's released catalog, in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_engine::{
    ApplyLock, ApplyOptions, Cancellation, CatalogPlan, CommandSetting, LockOwner, OrderingMode,
    OtherNodeOutputs, PlanError, Registry, RunEnd as Early, RunNeeds, Summary, UnknownType,
    apply_plan,
};
use bunraku_model::NodeName;
use bunraku_wire::api::{Cause, RunEnding, RunMode};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::event::ReportSink;
use super::labels::{labels_of, variables_of};
use super::method::{PreparedRun, RunDescription, RunEnd, RunMethod, RunOrder, RunStartError};
use super::modules::PinnedPackages;
use super::released::{ReleasedCatalog, released};
use crate::catalogs::{CachedSources, CachedTarget, CatalogOptions, Catalogs};
use crate::coordination::{CueTransport, RunCues, ServerCoordinator};
use crate::plugins::Plugins;
use crate::reports::Recorder;
use crate::{CollectFacts, ModuleFacts};

/// The options of the engine on this node.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The directory for backups, the lock, and the record of what was applied last.
    pub state_directory: PathBuf,
    /// The root directory of the managed machine, if it is not `/`.
    pub root: Option<PathBuf>,
    /// The ordering mode of every run. It overrides the one that a catalog asks for.
    pub order: Option<OrderingMode>,
    /// The time to wait for a user's `bunraku apply` to finish.
    pub lock_wait: Duration,
    /// The directory of keys whose modules may run here (`*.pub`), and of the list of revoked keys.
    pub module_keys: PathBuf,
    pub catalogs: CatalogOptions,
    /// Delivers cues that do not go through our servers.
    pub transport: Option<Arc<dyn CueTransport>>,
}

/// Applies released catalogs.
pub(crate) struct EngineMethod {
    pub(crate) catalogs: Catalogs,
    pub(crate) collect_facts: CollectFacts,
    pub(crate) plugins: Plugins,
    pub(crate) options: EngineOptions,
    /// The name that this node acts under.
    pub(crate) node: NodeName,
}

struct PreparedCatalog {
    plan: CatalogPlan,
    sink: Box<dyn FnOnce(Arc<Recorder>) -> ReportSink + Send>,
    sources: CachedSources,
    facts: Option<(CollectFacts, ModuleFacts)>,
    known: CachedTarget,
    mode: RunMode,
    options: EngineOptions,
    other_nodes: OtherNodeOutputs,
    coordinator: ServerCoordinator,
    causes: Vec<Cause>,
}

#[async_trait]
impl RunMethod for EngineMethod {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn applies_released(&self) -> bool {
        true
    }

    async fn prepare(&self, order: &RunOrder) -> Result<Box<dyn PreparedRun>, RunStartError> {
        let ReleasedCatalog {
            known,
            catalog,
            mode,
        } = released(&self.catalogs, order).await?;
        let packages = PinnedPackages::of(&self.catalogs, &known.target, &catalog).await?;
        let other_nodes =
            super::inputs::inputs(&self.catalogs, &known.target, &catalog, &order.causes).await;
        let (node_cache, collect) = (self.catalogs.cache.clone(), Arc::clone(&self.collect_facts));
        let (options, known_target) = (self.options.clone(), known.clone());
        let mut registry = Registry::standard();
        let coordinator = self.coordinator(order);
        let (tags, causes) = (order.tags.clone(), order.causes.clone());
        let modules = self.plugins.last_facts();
        let planned = tokio::task::spawn_blocking(move || {
            if let Some(packages) = packages {
                // Only a run that may change things records versions.
                let remember = mode == RunMode::Enforce;
                packages.add_to(&mut registry, &catalog, &options, remember)?;
            }
            let needs = RunNeeds::of(&catalog, options.order);
            let plan = CatalogPlan::new(&catalog, &registry, needs.plan_options())
                .map_err(|error| not_planned(&error))?;
            let plan = (plan.only_tagged(&catalog, &tags))
                .map_err(|error| RunStartError::because("invalid tag", &error))?;
            let sources = CachedSources::new(node_cache, &catalog);
            let facts = needs.facts.then_some((collect, modules));
            let sink = Box::new(move |recorder| ReportSink::new(recorder, &catalog));
            Ok(PreparedCatalog {
                plan,
                sink,
                sources,
                facts,
                known: known_target,
                mode,
                options,
                other_nodes,
                coordinator,
                causes,
            })
        });
        match planned.await {
            Ok(prepared) => prepared.map(|prepared| Box::new(prepared) as Box<dyn PreparedRun>),
            Err(error) => Err(RunStartError::because("cannot plan the catalog", &error)),
        }
    }
}

impl EngineMethod {
    /// Returns the coordinator for triggers and locks of this run. It acts as this node, on behalf
    /// of the run's causes.
    fn coordinator(&self, order: &RunOrder) -> ServerCoordinator {
        let cues = RunCues {
            causes: order.causes.clone(),
            transport: self.options.transport.clone(),
            runtime: tokio::runtime::Handle::current(),
        };
        ServerCoordinator::new(self.catalogs.client().clone(), self.node.clone(), cues)
    }
}

/// Says why a catalog cannot be planned.
fn not_planned(error: &PlanError) -> RunStartError {
    match error.unknown_types().as_slice() {
        [] => RunStartError::because("the catalog has problems", error),
        unknown => RunStartError::new(unknown_types(unknown)),
    }
}

/// Says which types are unknown, once per type, and what to do.
fn unknown_types(unknown: &[UnknownType]) -> String {
    let list: Vec<String> = unknown.iter().map(UnknownType::to_string).collect();
    format!(
        "nothing was applied: the engine does not know the resource {} {}. Set `run_method = \
         \"puppet\"` under [agent] and `released = true` under [agent.puppet] on this node, so \
         that its Puppet applies the catalog",
        if unknown.len() == 1 { "type" } else { "types" },
        list.join(", ")
    )
}

#[async_trait]
impl PreparedRun for PreparedCatalog {
    fn describe(&self) -> RunDescription {
        let target = &self.known.target;
        RunDescription {
            mode: self.mode,
            environment: Some(target.environment.clone()),
            release: Some(target.release),
            catalog: Some(target.catalog),
            code_id: target.code_id.clone(),
            from_cache: self.known.from_cache,
            resources: self.plan.len() as u64,
        }
    }

    async fn execute(self: Box<Self>, recorder: Arc<Recorder>, stop: CancellationToken) -> RunEnd {
        let failed = |message: String| RunEnd {
            ending: RunEnding::Failed,
            message: Some(message),
            failure: None,
        };
        let cancellation = match Cancellation::new() {
            Ok(cancellation) => cancellation,
            Err(error) => return failed(format!("cannot set up the run: {error}")),
        };
        let cancel = cancellation.clone();
        let mut work = tokio::task::spawn_blocking(move || self.work(recorder, cancellation));
        let ended = tokio::select! {
            ended = &mut work => ended,
            () = stop.cancelled() => {
                cancel.cancel();
                work.await
            }
        };
        ended.unwrap_or_else(|error| failed(format!("the run failed: {error}")))
    }
}

impl PreparedCatalog {
    /// Applies the catalog. Blocks.
    fn work(self, recorder: Arc<Recorder>, cancellation: Cancellation) -> RunEnd {
        let noop = self.mode == RunMode::Noop;
        // A noop run changes nothing, so it does not have to wait for other runs.
        let _lock = if noop {
            None
        } else {
            match take_lock(&self.options) {
                Ok(lock) => Some(lock),
                Err(message) => {
                    return RunEnd {
                        ending: RunEnding::NotStarted,
                        message: Some(message),
                        failure: None,
                    };
                }
            }
        };
        let facts: Map<String, Value> = match &self.facts {
            Some((collect, modules)) => collect(modules).into_map(),
            None => Map::new(),
        };
        let sink = (self.sink)(recorder);
        let how = ApplyOptions {
            noop,
            root: self.options.root.clone(),
            sources: Arc::new(self.sources),
            facts: Arc::new(facts),
            labels: Arc::new(label_data(&self.causes)),
            commands: CommandSetting {
                environment: variables_of(&self.causes),
                ..CommandSetting::default()
            },
            other_nodes: Arc::new(self.other_nodes),
            coordinator: Arc::new(self.coordinator),
            ..ApplyOptions::new(&self.options.state_directory, cancellation, &sink)
        };
        match apply_plan(&self.plan, how) {
            Ok(summary) => end_of(&summary),
            Err(error) => RunEnd {
                ending: RunEnding::Failed,
                message: Some(RunStartError::because("the run was not recorded", &error).message),
                failure: None,
            },
        }
    }
}

fn label_data(causes: &[Cause]) -> Map<String, Value> {
    let labels = labels_of(causes).into_iter();
    labels.map(|(name, value)| (name, value.into())).collect()
}

fn take_lock(options: &EngineOptions) -> Result<ApplyLock, String> {
    let owner = LockOwner {
        pid: std::process::id(),
        user: "bunraku agent".to_owned(),
        command: "bunraku agent".to_owned(),
        since: jiff::Timestamp::now().strftime("%FT%TZ").to_string(),
    };
    ApplyLock::take(&options.state_directory, &owner, options.lock_wait)
        .map_err(|error| RunStartError::because("nothing was changed", &error).message)
}

fn end_of(summary: &Summary) -> RunEnd {
    let message = match &summary.ended_early {
        None => None,
        Some(Early::Interrupted) => Some("it was stopped".to_owned()),
        Some(Early::FailHard(reference)) => Some(format!("{reference} failed and ended the run")),
    };
    RunEnd {
        ending: if summary.succeeded() {
            RunEnding::Succeeded
        } else {
            RunEnding::Failed
        },
        message,
        failure: None,
    }
}
