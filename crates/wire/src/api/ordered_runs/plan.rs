//! A plan: which node runs what, and what each waits for.

use std::collections::BTreeMap;

use bunraku_model::{ContentId, NodeName, content_id_of_json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The hash of everything that a plan was made from. Equal ids mean that
/// nothing changed.
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

/// A step by its place in [`Plan::steps`].
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

/// What a run would do. Steps are in an order in which they could be done one
/// after the other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    pub id: PlanId,
    pub environment: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_id: Option<String>,
    pub applications: Vec<String>,
    /// Nodes that could run at the same time, in run order.
    #[schema(value_type = Vec<Vec<String>>)]
    pub groups: Vec<Vec<NodeName>>,
    pub steps: Vec<Step>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One node's part. A node has one step, unless the plan is split into passes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Step {
    #[schema(value_type = String)]
    pub node: NodeName,
    /// From 1; nodes that run once have pass 1.
    pub pass: u32,
    /// The group, from 1: the longest chain of waits before it, and itself.
    pub group: u32,
    pub components: Vec<PlannedComponent>,
    pub waits_for: Vec<Wait>,
    /// Only these tags are run; empty means everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedComponent {
    pub application: String,
    pub component: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub produces: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumes: Vec<String>,
}

/// Another step that has to be done first, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Wait {
    #[schema(value_type = String)]
    pub node: NodeName,
    pub step: StepIndex,
    pub reasons: Vec<Reason>,
}

/// `component` needs `needs`, which comes `from` a component of the other step.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    pub component: String,
    /// A capability; nothing where order alone was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    pub from: String,
    /// What lies between, where a filter left it out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            component, from, ..
        } = self;
        match &self.needs {
            Some(needs) => write!(f, "{component} needs {needs} of {from}")?,
            None => write!(f, "{component} comes after {from}")?,
        }
        match self.through.as_slice() {
            [] => Ok(()),
            through => write!(f, " (through {}, left out)", through.join(", ")),
        }
    }
}

impl Plan {
    /// Every node, with its steps in order.
    pub fn nodes(&self) -> BTreeMap<&NodeName, Vec<StepIndex>> {
        let mut nodes: BTreeMap<&NodeName, Vec<StepIndex>> = BTreeMap::new();
        for (index, step) in (0..).zip(&self.steps) {
            nodes.entry(&step.node).or_default().push(StepIndex(index));
        }
        nodes
    }

    pub fn step(&self, index: StepIndex) -> Option<&Step> {
        self.steps.get(index.at())
    }

    /// Does any node run more than once?
    pub fn has_passes(&self) -> bool {
        self.steps.iter().any(|step| step.pass > 1)
    }

    /// Why these steps cannot be carried out, if a plan that came from outside
    /// is not what this crate makes.
    pub fn unsound(&self) -> Option<&'static str> {
        let mut open = vec![0usize; self.groups.len()];
        for (at, step) in self.steps.iter().enumerate() {
            if step.group == 0 || step.group as usize > self.groups.len() {
                return Some("a step belongs to no group");
            }
            open[step.group as usize - 1] += 1;
            if step.waits_for.iter().any(|wait| wait.step.at() >= at) {
                return Some("a step waits for one that does not come before it");
            }
        }
        let as_told = open
            .iter()
            .zip(&self.groups)
            .all(|(open, group)| *open == group.len());
        match (self.steps.is_empty(), as_told, self.identity() == self.id) {
            (true, _, _) => Some("it has no steps"),
            (_, false, _) => Some("its groups are not those of its steps"),
            (_, _, false) => Some("its id is not that of its content"),
            _ => None,
        }
    }

    /// The hash over everything but warnings.
    pub fn identity(&self) -> PlanId {
        let body = serde_json::json!({
            "environment": self.environment,
            "code_id": self.code_id,
            "applications": self.applications,
            "steps": self.steps,
        });
        PlanId(content_id_of_json(&body))
    }
}
