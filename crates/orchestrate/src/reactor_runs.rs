//! Ordered runs that reactors ask for: planned, started, and recorded.
//!
//! A reactor announces a run in the transaction that reacts to its event
//! (`cues/src/reactors/announced_run.rs`). Every server works on the announcements. The id of the
//! run comes from the announcement, so it is created once; the announcement is removed in the
//! transaction that writes the result to the history. A run that cannot be planned or is refused
//! is in the history, too, with the reason.
//!
//! Rule: such a run uses only nodes of the reactor's environment.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bunraku_compile::code::{Code, CodeError};
use bunraku_compile::environments::Environments;
use bunraku_control::audit::AuditAction;
use bunraku_control::clock::Clock;
use bunraku_control::{FindNodes, ServiceAudit, ServiceError, document, keys, nodes};
use bunraku_cues::due;
use bunraku_cues::reactors::AnnouncedRun;
use bunraku_model::{CodeId, NodeName, RunId};
use bunraku_plan::run::{NewRun, RunRecord};
use bunraku_plan::{
    Application, Component, Filter, Inventory, LocatedName, NodeRead, PlanOptions, ReadError,
    RunPlan, Site, environment_graph, plan_site, site_file, site_queries,
};
use bunraku_store::{SharedStore, Transaction, settle};
use bunraku_wire::api::AuditSource;
use bunraku_wire::api::outputs::NodeReads;
use bunraku_wire::api::triggers::{TriggerEvent, TriggerNews};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::orchestration::{Orchestration, RunOrigin};
use crate::outputs::Outputs;

/// The size limit of a site, in bytes.
const LARGEST_SITE: u64 = 16 << 20;
/// The number of nodes that a refusal names.
const NAMED_NODES: usize = 5;
/// The number of characters of a refusal that the history keeps.
const MESSAGE_KEPT: usize = 2_000;

/// The parts of the service.
pub struct ReactorRunParts {
    pub store: SharedStore,
    pub clock: Clock,
    pub code: Code,
    pub environments: Environments,
    pub outputs: Outputs,
    pub orchestration: Orchestration,
    pub find_nodes: Arc<dyn FindNodes>,
    pub audit: ServiceAudit,
}

/// The handle on the service.
#[derive(Clone)]
pub struct ReactorRuns {
    parts: Arc<ReactorRunParts>,
}

impl ReactorRuns {
    pub fn new(parts: ReactorRunParts) -> Self {
        Self {
            parts: Arc::new(parts),
        }
    }

    /// Starts announced runs until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let all = due::each_entry(&self.parts.store, keys::REACTOR_RUNS, |key| async move {
            self.process(&key).await
        });
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = all => {}
        }
    }

    /// Starts the run announced at a key, or records why it was refused.
    pub async fn process(&self, key: &str) -> Result<(), ServiceError> {
        let Some(entry) = self.parts.store.get(key).await? else {
            // Another server was faster.
            return Ok(());
        };
        let transaction = Transaction::new()
            .when_unchanged(key, Some(&entry))
            .delete(key);
        let announced: AnnouncedRun = match document::decode(&entry) {
            Ok(announced) => announced,
            Err(error) => {
                tracing::error!(error = %error, "ignoring an announced run");
                settle(&*self.parts.store, transaction).await?;
                return Ok(());
            }
        };
        let reason = announced.reason().cloned();
        let by = announced.by.clone();
        let action = AuditAction::new("start-run")
            .on("run", announced.id)
            .detail("environment", announced.environment.to_string())
            .because(reason.as_deref())
            .by(by.clone(), AuditSource::Reactor);
        let what = match self.start(&announced).await {
            Ok(record) => TriggerNews::RunStarted {
                by,
                run: record.id,
                nodes: record.nodes,
                reason,
            },
            Err(error) if is_passing(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(
                    by,
                    error = &error as &dyn std::error::Error,
                    "a reactor's run was refused"
                );
                TriggerNews::RunRefused {
                    by,
                    reason,
                    message: message_of(&error),
                }
            }
        };
        let event = TriggerEvent {
            trigger: announced.trigger,
            at: self.parts.clock.now(),
            what,
        };
        let event_key = keys::trigger_event(Uuid::now_v7());
        let transaction = transaction.put(event_key, document::encode(&event));
        let action = match &event.what {
            TriggerNews::RunRefused { message, .. } => action.detail("refused", message.clone()),
            _ => action,
        };
        let transaction = self.parts.audit.record_in(transaction, action);
        // Refused: another server has recorded it.
        settle(&*self.parts.store, transaction).await?;
        Ok(())
    }

    async fn start(&self, announced: &AnnouncedRun) -> Result<RunRecord, ServiceError> {
        if let Some(known) = self.known(announced.id).await? {
            return Ok(known);
        }
        let plan = self.plan(announced).await?;
        if plan.steps.is_empty() {
            return Err(ServiceError::invalid("the plan is empty: no node matches"));
        }
        let plan = plan.with_options(announced.run.options.clone(), announced.run.subject.clone());
        let new = NewRun {
            reason: announced.reason().cloned(),
            ..NewRun::of(plan)
        };
        let origin = RunOrigin {
            id: announced.id,
            by: announced.by.clone(),
            causes: announced.causes.clone(),
        };
        self.parts.orchestration.create_from(new, origin).await
    }

    async fn known(&self, run: RunId) -> Result<Option<RunRecord>, ServiceError> {
        let found = document::read(&*self.parts.store, &keys::run_record(run)).await?;
        Ok(found.map(|found| found.document))
    }

    /// Plans the run with the code that is deployed now.
    async fn plan(&self, announced: &AnnouncedRun) -> Result<RunPlan, ServiceError> {
        let selected = self.selected(announced).await?;
        let (mut site, only) = match &announced.run.site {
            Some(path) => (self.site(announced, path).await?, selected),
            None => (without_order(announced, selected.unwrap_or_default()), None),
        };
        site.environment = announced.environment.to_string();
        for NodeReads { node, reads } in self.parts.outputs.reads().await? {
            site.reads.extend(reads.into_iter().map(|read| NodeRead {
                reader: node.to_string(),
                source: read.node,
                name: read.name,
            }));
        }
        let options = PlanOptions {
            filter: Filter {
                instances: announced.run.instances.clone(),
                nodes: Vec::new(),
                only,
            },
            passes: false,
        };
        let planned = tokio::task::spawn_blocking(move || plan_site(&site, &options)).await;
        let plan = planned.map_err(|error| ServiceError::Internal {
            what: "planning failed".to_owned(),
            source: Box::new(error),
        })?;
        let plan = plan.map_err(|error| ServiceError::invalid(error.to_string()))?;
        self.refuse_other_environments(announced, &plan).await?;
        Ok(plan)
    }

    /// Returns the nodes that the rule names, if it names any.
    async fn selected(
        &self,
        announced: &AnnouncedRun,
    ) -> Result<Option<BTreeSet<NodeName>>, ServiceError> {
        if announced.hosts.is_empty() && announced.query.is_none() {
            return Ok(None);
        }
        let mut selected: BTreeSet<NodeName> = announced.hosts.iter().cloned().collect();
        if let Some(query) = &announced.query {
            for node in self.parts.find_nodes.nodes_matching(query).await? {
                let environment = nodes::environment_of(&*self.parts.store, &node).await?;
                if environment.as_ref() == Some(&announced.environment) {
                    selected.insert(node);
                }
            }
        }
        Ok(Some(selected))
    }

    /// Reads the site from the environment's code.
    async fn site(&self, announced: &AnnouncedRun, path: &str) -> Result<Site, ServiceError> {
        let environment = &announced.environment;
        let deployed = self.parts.environments.deployed(environment).await?;
        let code_id = deployed.map(|deployed| deployed.code_id).ok_or_else(|| {
            ServiceError::invalid(format!("environment `{environment}` has no deployed code"))
        })?;
        let text = self.site_text(announced, &code_id, path).await?;
        let mut site = if path.ends_with(".json") {
            environment_graph(path, &text).map_err(unreadable)?
        } else {
            let mut inventory = Inventory::of(self.nodes_of(announced).await?);
            for query in site_queries(path, &text).map_err(unreadable)? {
                let found = self.parts.find_nodes.nodes_matching(&query).await?;
                inventory.answers.insert(query, found);
            }
            site_file(path, &text, &inventory).map_err(unreadable)?
        };
        site.code_id = Some(code_id.to_string());
        Ok(site)
    }

    async fn site_text(
        &self,
        announced: &AnnouncedRun,
        code_id: &CodeId,
        path: &str,
    ) -> Result<String, ServiceError> {
        let tree = self.parts.code.tree(&announced.environment, code_id).await;
        let tree = tree.map_err(|error| match error {
            CodeError::Service(error) => error,
            error if error.is_lasting() => ServiceError::invalid(error.to_string()),
            error => ServiceError::Unavailable {
                message: format!("cannot read the code: {error}"),
                hint: "see the log of the server".to_owned(),
            },
        })?;
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || read_below(&tree, &path)).await;
        let text = read.map_err(|error| ServiceError::Internal {
            what: "reading the site failed".to_owned(),
            source: Box::new(error),
        })?;
        text.map_err(ServiceError::invalid)
    }

    /// Returns the nodes of the environment.
    async fn nodes_of(&self, announced: &AnnouncedRun) -> Result<Vec<NodeName>, ServiceError> {
        let mut all = Vec::new();
        for entry in document::read_all(&*self.parts.store, keys::NODES).await? {
            if let Some((node, "record")) = keys::parse_node_key(&entry.key)
                && nodes::environment_in(&entry)? == announced.environment
            {
                all.push(node);
            }
        }
        Ok(all)
    }

    async fn refuse_other_environments(
        &self,
        announced: &AnnouncedRun,
        plan: &RunPlan,
    ) -> Result<(), ServiceError> {
        let mut foreign = Vec::new();
        for node in plan.nodes().into_keys() {
            let of = nodes::environment_of(&*self.parts.store, node).await?;
            // An unknown node is reported when the run begins.
            if of.is_some_and(|of| of != announced.environment) {
                foreign.push(node.as_str());
            }
        }
        if foreign.is_empty() {
            return Ok(());
        }
        let more = foreign.len().saturating_sub(NAMED_NODES);
        foreign.truncate(NAMED_NODES);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Err(ServiceError::invalid(format!(
            "a reactor starts runs only on nodes of its environment `{}`, which these are not: {}{more}",
            announced.environment,
            foreign.join(", ")
        )))
    }
}

/// Returns a site in which the nodes do not depend on each other.
fn without_order(announced: &AnnouncedRun, hosts: BTreeSet<NodeName>) -> Site {
    let component = Component {
        name: announced.trigger.to_string(),
        nodes: hosts
            .iter()
            .map(|host| LocatedName::new(host.as_str()))
            .collect(),
        on_each: true,
        ..Component::default()
    };
    let application = Application {
        name: announced.trigger.to_string(),
        components: vec![component],
    };
    Site {
        applications: if hosts.is_empty() {
            Vec::new()
        } else {
            vec![application]
        },
        ..Site::default()
    }
}

/// Reads a file below a directory. A link must not lead out of it.
fn read_below(tree: &Path, path: &str) -> Result<String, String> {
    let cannot = |why: String| format!("cannot read the site `{path}`: {why}");
    let root = tree
        .canonicalize()
        .map_err(|error| cannot(error.to_string()))?;
    let file = tree.join(path);
    let file = file
        .canonicalize()
        .map_err(|error| cannot(error.to_string()))?;
    if !file.starts_with(&root) {
        return Err(cannot("it is outside of the code".to_owned()));
    }
    let about = file.metadata().map_err(|error| cannot(error.to_string()))?;
    if !about.is_file() || about.len() > LARGEST_SITE {
        return Err(cannot(format!(
            "it must be a regular file of at most {LARGEST_SITE} bytes"
        )));
    }
    std::fs::read_to_string(&file).map_err(|error| cannot(error.to_string()))
}

fn unreadable(error: ReadError) -> ServiceError {
    ServiceError::invalid(error.to_string())
}

/// Returns whether a retry can succeed without any other change.
fn is_passing(error: &ServiceError) -> bool {
    matches!(
        error,
        ServiceError::Store(_) | ServiceError::Unavailable { .. } | ServiceError::Busy { .. }
    )
}

fn message_of(error: &ServiceError) -> String {
    let text = bunraku_model::error_chain(error);
    text.chars().take(MESSAGE_KEPT).collect()
}
