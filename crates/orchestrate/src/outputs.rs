//! Outputs that pass from one node to another.
//!
//! Reports store the outputs that nodes register (`reports/outputs.rs`). A node
//! gets the outputs that its released catalog reads and nothing else.
//!
//! In an ordered run, only outputs that the source produced *in this run* count,
//! not older ones. Outside of one, or if the source is not part of it, the newest
//! output counts.

use std::collections::HashSet;

use bunraku_model::{CatalogId, NodeName, NodeRunId, RunId};
use bunraku_plan::StepIndex;
use bunraku_plan::run::{Run, StepState};
use bunraku_store::SharedStore;
use bunraku_wire::api::outputs::{NodeReads, OtherNodeOutput, OutputRead};

use crate::orchestration::Orchestration;
use crate::output_reads::reads_of;
use bunraku_compile::TargetBoard;
use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::compiles::CompiledCatalog;
use bunraku_control::document;
use bunraku_control::reports::NodeOutput;
use bunraku_control::{ServiceError, keys};

/// The handle on outputs.
#[derive(Clone)]
pub struct Outputs {
    store: SharedStore,
    catalogs: Catalogs,
    board: TargetBoard,
    orchestration: Orchestration,
}

/// The state of an ordered run's nodes.
struct RunState {
    run: Run,
    /// Steps that were done in the run that this one resumes.
    done: Vec<StepIndex>,
}

impl Outputs {
    pub fn new(
        store: SharedStore,
        catalogs: Catalogs,
        board: TargetBoard,
        orchestration: Orchestration,
    ) -> Self {
        Self {
            store,
            catalogs,
            board,
            orchestration,
        }
    }

    /// Returns the outputs that each node's released catalog reads, without nodes
    /// that read nothing.
    pub async fn reads(&self) -> Result<Vec<NodeReads>, ServiceError> {
        let read_nothing = self.catalogs_that_read_nothing().await?;
        let mut all = Vec::new();
        for key in document::keys_under(&*self.store, keys::TARGETS).await? {
            let Some(node) = keys::parse_target(&key) else {
                continue;
            };
            let Some(target) = self.board.get(&node).await? else {
                continue;
            };
            let catalog = target.stored.target.catalog;
            if read_nothing.contains(&catalog) {
                continue;
            }
            let reads = reads_of(&self.catalogs.get(catalog).await?);
            if !reads.is_empty() {
                all.push(NodeReads { node, reads });
            }
        }
        Ok(all)
    }

    /// Returns the catalogs that read nothing. Compiling recorded which ones read
    /// outputs, so most catalogs need no check.
    async fn catalogs_that_read_nothing(&self) -> Result<HashSet<CatalogId>, ServiceError> {
        let mut found = HashSet::new();
        for entry in document::read_all(&*self.store, keys::COMPILED).await? {
            let compiled: CompiledCatalog = document::decode(&entry)?;
            if compiled.reads_from_nodes.is_empty() {
                found.insert(compiled.catalog);
            }
        }
        Ok(found)
    }

    /// Returns everything that a catalog of this node reads, for one of its runs.
    pub async fn inputs(
        &self,
        node: &NodeName,
        catalog: CatalogId,
        run: Option<RunId>,
    ) -> Result<Vec<OtherNodeOutput>, ServiceError> {
        let planned = async || self.orchestration.held_catalog(node).await;
        if !self.board.may_read(node, catalog).await? && planned().await? != Some(catalog) {
            return Err(bunraku_compile::catalogs::CatalogError::Missing(catalog).into());
        }
        let reads = reads_of(&self.catalogs.get(catalog).await?);
        let in_run = match run {
            Some(run) if !reads.is_empty() => Some(self.in_run(run).await?),
            _ => None,
        };
        let mut inputs = Vec::with_capacity(reads.len());
        for read in reads {
            inputs.push(self.input(read, in_run.as_ref()).await?);
        }
        Ok(inputs)
    }

    async fn in_run(&self, run: RunId) -> Result<RunState, ServiceError> {
        let detail = self.orchestration.show(run).await?;
        let done = detail.record.done.clone();
        let plan = std::sync::Arc::new(detail.plan);
        let (run, _) = Run::of_record(&detail.record, plan, detail.log.entries);
        Ok(RunState { run, done })
    }

    async fn input(
        &self,
        read: OutputRead,
        in_run: Option<&RunState>,
    ) -> Result<OtherNodeOutput, ServiceError> {
        let missing = |read: OutputRead, why: String| OtherNodeOutput {
            read,
            value: None,
            missing: Some(why),
            given: None,
        };
        let OutputRead { node, name } = &read;
        let Ok(source) = NodeName::new(node.clone()) else {
            let why = format!("`{node}` is not a valid node name");
            return Ok(missing(read, why));
        };
        let known = if name.contains('/') {
            None
        } else {
            let key = keys::node_output(&source, name);
            document::read::<NodeOutput>(&*self.store, &key).await?
        };
        let known = known.map(|known| known.document);
        let standing = in_run.and_then(|in_run| in_run.source_state(&source));
        let usable = known.filter(|known| match &standing {
            Some(standing) => standing.runs.contains(&known.run),
            None => true,
        });
        let begin = match standing {
            Some(_) => format!("node {node} has not registered `{name}` in this run"),
            None => format!("node {node} has not registered `{name}`"),
        };
        Ok(match (usable, standing) {
            (Some(known), _) => match known.withheld {
                Some(why) => missing(read, format!("{begin}: {why}")),
                None => OtherNodeOutput {
                    read,
                    value: known.value,
                    missing: None,
                    given: Some(known.at),
                },
            },
            (None, Some(standing)) => missing(read, format!("{begin}: {}", standing.why_not)),
            (None, None) => {
                let why = "none of its runs has registered it yet";
                missing(read, format!("{begin}: {why}"))
            }
        })
    }
}

/// The state of a source in the run.
struct SourceState {
    /// The source's node runs in the ordered run.
    runs: Vec<NodeRunId>,
    why_not: String,
}

impl RunState {
    /// Returns `None` if the node is not part of the run, or was done in an
    /// earlier one: its newest output then counts.
    fn source_state(&self, node: &NodeName) -> Option<SourceState> {
        let steps = self.run.plan().nodes().remove(node)?;
        if steps.iter().all(|step| self.done.contains(step)) {
            return None;
        }
        let last = steps.last()?;
        let status = &self.run.statuses()[last.at()];
        let why_not = match &status.state {
            StepState::Succeeded if self.run.options().noop => {
                "noop runs do not register outputs".to_owned()
            }
            StepState::Succeeded => "no state in its catalog registers it".to_owned(),
            StepState::Skipped { reason } => format!("it was skipped: {reason}"),
            state => format!("it is {}", state.name()),
        };
        let runs = steps.iter().map(|step| self.run.node_run(*step)).collect();
        Some(SourceState { runs, why_not })
    }
}
