//! Plans: what each node runs, and what it waits for.

use std::collections::BTreeMap;

use bunraku_model::{ContentId, NodeName, content_id_of_json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::options::RunOptions;
use super::record::OrderedRunSubject;
use super::work::PlannedWork;

/// The hash of everything in a plan. Equal ids mean equal plans.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema,
)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct PlanId(pub ContentId);

impl std::fmt::Display for PlanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The index of a step in [`RunPlan::steps`].
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema,
)]
#[serde(transparent)]
pub struct StepIndex(pub u32);

impl StepIndex {
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// The steps of a run, in an order in which they could run one after the other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunPlan {
    pub id: PlanId,
    pub environment: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_id: Option<String>,
    pub applications: Vec<String>,
    /// Groups of nodes that can run at the same time, in run order.
    #[schema(value_type = Vec<Vec<String>>)]
    pub groups: Vec<Vec<NodeName>>,
    pub steps: Vec<PlanStep>,
    /// How the steps run: noop, limits, timeouts.
    #[serde(default)]
    pub options: RunOptions,
    /// The kind of work that was requested of the nodes. Each step names the work itself.
    #[serde(default)]
    pub subject: OrderedRunSubject,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One node's step. A node has one step, unless the plan has several passes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlanStep {
    #[schema(value_type = String)]
    pub node: NodeName,
    /// The pass, from 1. Nodes that run once have pass 1.
    pub pass: u32,
    /// The group, from 1: the length of the longest chain of dependencies that ends with this step.
    pub group: u32,
    pub components: Vec<PlannedComponent>,
    pub waits_for: Vec<StepDependency>,
    /// Only resources with these tags are applied. If empty, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The value of the fact that forms batches. Empty if the node has no such fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// The work of the node. Absent in a plan that was made without a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<PlannedWork>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedComponent {
    pub application: String,
    pub component: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub produces: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumes: Vec<String>,
    /// A digest of the value of each parameter. The values themselves are not part of a plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// A step that must finish first, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StepDependency {
    #[schema(value_type = String)]
    pub node: NodeName,
    pub step: StepIndex,
    pub reasons: Vec<DependencyReason>,
}

/// `component` requires `needs`, which the component `from` in the other step produces.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct DependencyReason {
    pub component: String,
    /// The capability. Absent if only the order was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    pub from: String,
    /// Components in between that a filter left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
}

impl std::fmt::Display for DependencyReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            component, from, ..
        } = self;
        match &self.needs {
            Some(needs) => write!(f, "{component} needs {needs} from {from}")?,
            None => write!(f, "{component} comes after {from}")?,
        }
        match self.through.as_slice() {
            [] => Ok(()),
            through => write!(f, " (through {}, not included)", through.join(", ")),
        }
    }
}

impl RunPlan {
    /// Returns every node with its steps in order.
    pub fn nodes(&self) -> BTreeMap<&NodeName, Vec<StepIndex>> {
        let mut nodes: BTreeMap<&NodeName, Vec<StepIndex>> = BTreeMap::new();
        for (index, step) in (0..).zip(&self.steps) {
            nodes.entry(&step.node).or_default().push(StepIndex(index));
        }
        nodes
    }

    pub fn step(&self, index: StepIndex) -> Option<&PlanStep> {
        self.steps.get(index.at())
    }

    /// Returns `true` if any node runs more than once.
    pub fn has_passes(&self) -> bool {
        self.steps.iter().any(|step| step.pass > 1)
    }

    /// Returns why these steps cannot be executed, if a plan from outside is not valid.
    pub fn problem(&self) -> Option<&'static str> {
        let mut open = vec![0usize; self.groups.len()];
        for (at, step) in self.steps.iter().enumerate() {
            if step.group == 0 || step.group as usize > self.groups.len() {
                return Some("a step belongs to no group");
            }
            open[step.group as usize - 1] += 1;
            if step.waits_for.iter().any(|wait| wait.step.at() >= at) {
                return Some("a step waits for one that is not earlier in the plan");
            }
        }
        let as_told = open
            .iter()
            .zip(&self.groups)
            .all(|(open, group)| *open == group.len());
        match (self.steps.is_empty(), as_told, self.identity() == self.id) {
            (true, _, _) => Some("it has no steps"),
            (_, false, _) => Some("its groups do not match its steps"),
            (_, _, false) => Some("its id does not match its content"),
            _ => None,
        }
    }

    /// Returns `true` if every step names its work.
    pub fn is_bound(&self) -> bool {
        self.steps.iter().all(|step| step.work.is_some())
    }

    /// Returns the hash of everything that decides what a run does. Not included: warnings, and
    /// the number of the release that introduced a catalog.
    pub fn identity(&self) -> PlanId {
        let work: Vec<serde_json::Value> = (self.steps.iter())
            .map(|step| step.work.as_ref().map(PlannedWork::essence).into())
            .collect();
        let steps: Vec<PlanStep> = (self.steps.iter().cloned())
            .map(|step| PlanStep { work: None, ..step })
            .collect();
        let body = serde_json::json!({
            "environment": self.environment,
            "code_id": self.code_id,
            "applications": self.applications,
            "steps": steps,
            "work": work,
            "options": self.options,
            "subject": self.subject,
        });
        PlanId(content_id_of_json(&body))
    }

    /// Returns the plan with these options, and the id that follows from them.
    pub fn with_options(mut self, options: RunOptions, subject: OrderedRunSubject) -> Self {
        self.options = options;
        self.subject = subject;
        self.id = self.identity();
        self
    }
}
