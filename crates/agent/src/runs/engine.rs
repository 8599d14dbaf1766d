//! A run that applies the node's released catalog, in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_engine::{
    ApplyLock, Cancellation, CarryOut, LockOwner, Mode, OtherNodes, Plan, PlanOptions, Registry,
    RunEnd as Early, Summary, carry_out,
};
use bunraku_model::{Catalog, NodeName};
use bunraku_wire::api::{RunEnding, RunMode};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::event::ReportSink;
use super::method::{NotStarted, PreparedRun, RunDescription, RunEnd, RunMethod, RunOrder};
use super::modules::PinnedPackages;
use super::released::{Released, released};
use crate::CollectFacts;
use crate::catalogs::{CachedSources, CatalogOptions, Catalogs, KnownTarget};
use crate::coordination::{CueTransport, RunCues, ServerCoordinator};
use crate::reports::Recorder;

/// The options of the engine on this node.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The directory for backups, the lock, and the record of what was applied last.
    pub state_directory: PathBuf,
    /// The root directory of the managed machine, if it is not `/`.
    pub root: Option<PathBuf>,
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
    pub(crate) options: EngineOptions,
    /// The name that this node acts under.
    pub(crate) node: NodeName,
}

struct PreparedCatalog {
    plan: Plan,
    sink: Box<dyn FnOnce(Arc<Recorder>) -> ReportSink + Send>,
    sources: CachedSources,
    facts: Option<CollectFacts>,
    known: KnownTarget,
    mode: RunMode,
    options: EngineOptions,
    other_nodes: OtherNodes,
    coordinator: ServerCoordinator,
}

#[async_trait]
impl RunMethod for EngineMethod {
    fn name(&self) -> &'static str {
        "engine"
    }

    async fn prepare(&self, order: &RunOrder) -> Result<Box<dyn PreparedRun>, NotStarted> {
        let Released {
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
        let tags = order.tags.clone();
        let planned = tokio::task::spawn_blocking(move || {
            if let Some(packages) = packages {
                // Only a run that may change things records versions.
                let remember = mode == RunMode::Enforce;
                packages.add_to(&mut registry, &catalog, &options, remember)?;
            }
            let plan = (plan(&catalog, &registry)?.only_tagged(&catalog, &tags))
                .map_err(|error| NotStarted::because("nothing can be chosen by tag", &error))?;
            let sources = CachedSources::new(node_cache, &catalog);
            let facts = wants_facts(&catalog).then_some(collect);
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
            })
        });
        match planned.await {
            Ok(prepared) => prepared.map(|prepared| Box::new(prepared) as Box<dyn PreparedRun>),
            Err(error) => Err(NotStarted::because(
                "the catalog could not be planned",
                &error,
            )),
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

fn plan(catalog: &Catalog, registry: &Registry) -> Result<Plan, NotStarted> {
    // States are applied in the order of their files, as in Salt.
    let states = (catalog.resources.iter()).any(|resource| resource.state.is_some());
    let mode = if states {
        Mode::Ansible
    } else {
        Mode::default()
    };
    Plan::new(
        catalog,
        registry,
        PlanOptions {
            mode,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        },
    )
    .map_err(|error| NotStarted::because("the catalog has problems", &error))
}

fn wants_facts(catalog: &Catalog) -> bool {
    (catalog.resources.iter()).any(|resource| resource.parameters.contains_key("template"))
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

    async fn carry_out(
        self: Box<Self>,
        recorder: Arc<Recorder>,
        stop: CancellationToken,
    ) -> RunEnd {
        let failed = |message: String| RunEnd {
            ending: RunEnding::Failed,
            message: Some(message),
            failure: None,
        };
        let cancellation = match Cancellation::new() {
            Ok(cancellation) => cancellation,
            Err(error) => return failed(format!("the run could not be set up: {error}")),
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
        ended.unwrap_or_else(|error| failed(format!("the run broke: {error}")))
    }
}

impl PreparedCatalog {
    /// Applies the catalog. Blocks.
    fn work(self, recorder: Arc<Recorder>, cancellation: Cancellation) -> RunEnd {
        let noop = self.mode == RunMode::Noop;
        // A noop run changes nothing, so it does not have to wait for other runs.
        let _lock = match noop {
            true => None,
            false => match take_lock(&self.options) {
                Ok(lock) => Some(lock),
                Err(message) => {
                    return RunEnd {
                        ending: RunEnding::NotStarted,
                        message: Some(message),
                        failure: None,
                    };
                }
            },
        };
        let facts: Map<String, Value> = match &self.facts {
            Some(collect) => collect().into_map(),
            None => Map::new(),
        };
        let sink = (self.sink)(recorder);
        let how = CarryOut {
            noop,
            root: self.options.root.clone(),
            sources: Arc::new(self.sources),
            facts: Arc::new(facts),
            other_nodes: Arc::new(self.other_nodes),
            coordinator: Arc::new(self.coordinator),
            ..CarryOut::new(&self.options.state_directory, cancellation, &sink)
        };
        match carry_out(&self.plan, how) {
            Ok(summary) => end_of(&summary),
            Err(error) => RunEnd {
                ending: RunEnding::Failed,
                message: Some(NotStarted::because("the run was not recorded", &error).message),
                failure: None,
            },
        }
    }
}

fn take_lock(options: &EngineOptions) -> Result<ApplyLock, String> {
    let owner = LockOwner {
        pid: std::process::id(),
        user: "bunraku agent".to_owned(),
        command: "bunraku agent".to_owned(),
        since: jiff::Timestamp::now().strftime("%FT%TZ").to_string(),
    };
    ApplyLock::take(&options.state_directory, &owner, options.lock_wait)
        .map_err(|error| NotStarted::because("nothing was changed", &error).message)
}

fn end_of(summary: &Summary) -> RunEnd {
    let message = match &summary.ended_early {
        None => None,
        Some(Early::Interrupted) => Some("it was stopped".to_owned()),
        Some(Early::FailHard(reference)) => Some(format!("{reference} failed and ended the run")),
    };
    RunEnd {
        ending: match summary.succeeded() {
            true => RunEnding::Succeeded,
            false => RunEnding::Failed,
        },
        message,
        failure: None,
    }
}
