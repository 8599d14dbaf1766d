//! A checked and ordered catalog: every problem is found before anything changes.
//!
//! [`CatalogPlan::new`] is pure. It refuses unknown types and parameters, values that a type
//! cannot use, references to missing resources and cycles, all before anything is done.
//! It reports every problem at once.

mod control;
mod cycle;
mod error;
mod explain;
mod graph;
mod infer;
mod lazy;
mod resolve;
mod select;
mod steps;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bunraku_model::catalog::{Place, ResourceReference, StateOrigin};
use bunraku_model::{Catalog, OrderingMode};

pub(crate) use control::Control;
pub use error::{CycleStep, PlanError, Problem, ProblemKind, UnknownType};
pub use explain::Explanation;
pub(crate) use graph::{Edge, EdgeKind, Graph};
pub(crate) use lazy::KnownOutputs;
pub use select::InvalidTag;

use crate::access::ManagedPaths;
use crate::types::AnyInstance;
use crate::{Declaration, Registry, Secrets};

/// The options of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanOptions {
    pub mode: OrderingMode,
    /// The number of threads to use. 0 means 1. The plan does not depend on it.
    pub threads: usize,
}

/// A catalog that can be applied.
pub struct CatalogPlan {
    pub(crate) steps: Steps,
    pub(crate) containers: Vec<(ResourceReference, Place)>,
    pub(crate) graph: Graph,
    /// For each step with `prereq`: the steps that it probes.
    pub(crate) probes: HashMap<u32, Vec<u32>>,
    /// For each step with `listen`: the nodes that it listens to.
    pub(crate) listens: Vec<(u32, Vec<u32>)>,
    pub(crate) secrets: Secrets,
    pub(crate) mode: OrderingMode,
    pub(crate) registry: Registry,
    /// Inferred edges that would have closed a cycle.
    pub(crate) gave_way: Vec<Edge>,
    /// Every path that some step manages. Computed on demand, as few steps need it.
    managed: OnceLock<BTreeSet<PathBuf>>,
    /// The names under which outputs are registered.
    pub(crate) registered: HashSet<String>,
    /// The registered names whose outputs are secrets.
    pub(crate) secret: HashSet<String>,
    /// For each node, true if it is skipped. Empty when nothing is.
    left_out: Vec<bool>,
}

/// The steps. Boxed to avoid moves: they are large, and come from several threads.
#[allow(clippy::vec_box, reason = "moving them costs more than the box")]
pub(crate) type Steps = Vec<Box<Step>>;

/// One resource that does something.
pub(crate) struct Step {
    pub(crate) reference: Arc<ResourceReference>,
    pub(crate) place: Arc<Place>,
    pub(crate) state: Option<Box<StateOrigin>>,
    /// Shared by all steps without such parameters.
    pub(crate) control: Arc<Control>,
    pub(crate) body: Body,
    pub(crate) sensitive: Vec<String>,
    /// Its output is a secret (`no_log`).
    pub(crate) secret_outputs: bool,
    /// The hash of the whole declaration, to distinguish drift from a new declaration.
    pub(crate) declared: [u8; 16],
    /// Salt's `order` or the position in the catalog.
    pub(crate) order: i64,
    /// True if the step runs no command and waits for nothing, unless it has something to change.
    pub(crate) quick: bool,
}

/// A checked instance, or a declaration that waits for another step's outputs.
pub(crate) enum Body {
    Ready(Box<dyn AnyInstance>),
    Lazy(Box<Declaration<'static>>),
}

/// The meaning of a node of the graph. Steps come first, then two nodes for each
/// container, as in Puppet: one before and one after all its content. So an edge to a
/// container costs one edge, regardless of the size of its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    Step(u32),
    Begin(u32),
    End(u32),
}

impl CatalogPlan {
    /// Checks a catalog and orders it.
    pub fn new(
        catalog: &Catalog,
        registry: &Registry,
        options: PlanOptions,
    ) -> Result<Self, PlanError> {
        let parts = steps::read(catalog, registry, options.threads)?;
        let secret: HashSet<String> = (parts.steps.iter())
            .filter(|step| step.secret_outputs)
            .filter_map(|step| step.control.register.clone())
            .collect();
        let mut steps = parts.steps;
        for step in &mut steps {
            let read = lazy::secret_parameters(&step.body, &secret);
            step.sensitive.extend(read);
        }
        let mut plan = Self {
            secret,
            steps,
            containers: parts.containers,
            graph: Graph::default(),
            probes: HashMap::new(),
            listens: Vec::new(),
            secrets: parts.secrets,
            mode: options.mode,
            registry: registry.clone(),
            gave_way: Vec::new(),
            managed: OnceLock::new(),
            registered: parts.registered,
            left_out: Vec::new(),
        };
        let mut edges = resolve::edges(catalog, &mut plan, &parts.nodes)?;
        edges.extend(lazy::edges(&plan));
        edges.extend(infer::edges(&plan));
        resolve::wait_for_what_probes_wait_for(&plan.probes, &mut edges);
        plan.graph = Graph::new(plan.node_count(), edges);
        cycle::make_acyclic(&mut plan)?;
        let order: Vec<i64> = plan.steps.iter().map(|step| step.order).collect();
        plan.graph.rank(&order);
        Ok(plan)
    }

    /// Returns true if processes of extension modules may be running for it.
    pub fn has_modules(&self) -> bool {
        self.registry.has_modules()
    }

    /// Returns the number of resources that do something.
    pub fn len(&self) -> usize {
        let steps = 0..self.steps.len() as u32;
        steps.filter(|step| !self.is_left_out(*step)).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn mode(&self) -> OrderingMode {
        self.mode
    }
    fn node_count(&self) -> usize {
        self.steps.len() + 2 * self.containers.len()
    }

    pub(crate) fn node(&self, index: u32) -> Node {
        let steps = self.steps.len() as u32;
        match index.checked_sub(steps) {
            None => Node::Step(index),
            Some(rest) if rest % 2 == 0 => Node::Begin(rest / 2),
            Some(rest) => Node::End(rest / 2),
        }
    }

    pub(crate) fn reference_of(&self, index: u32) -> &ResourceReference {
        match self.node(index) {
            Node::Step(step) => &self.steps[step as usize].reference,
            Node::Begin(container) | Node::End(container) => &self.containers[container as usize].0,
        }
    }

    pub(crate) fn place_of(&self, index: u32) -> &Place {
        match self.node(index) {
            Node::Step(step) => &self.steps[step as usize].place,
            Node::Begin(container) | Node::End(container) => &self.containers[container as usize].1,
        }
    }
}

#[cfg(test)]
mod tests;

impl ManagedPaths for CatalogPlan {
    fn paths(&self) -> &BTreeSet<PathBuf> {
        self.managed.get_or_init(|| infer::managed(self))
    }
}
