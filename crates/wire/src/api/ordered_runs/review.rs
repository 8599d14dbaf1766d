//! A plan with the work of every node, and the changes that it would make.

use bunraku_model::NodeName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::plan::RunPlan;
use crate::api::FleetDiff;

/// A request to complete a plan with the work of every node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReviewPlan {
    pub plan: RunPlan,
    /// Use the newest compiled catalogs, released or not. Such a plan can run once they are
    /// released.
    #[serde(default)]
    pub held: bool,
}

/// A plan that names the work of every node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlanReview {
    pub plan: RunPlan,
    /// The changes to each node: its planned catalog, compared with the one that it applied last.
    pub changes: FleetDiff,
    /// Nodes whose newest catalog is compiled but not released, so that this plan does not apply
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub held: Vec<NodeName>,
}

/// A node whose part of a plan is no longer valid.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StaleNode {
    #[schema(value_type = String)]
    pub node: NodeName,
    /// What changed.
    pub reason: String,
}
