//! Catalogs: lists and comparisons.

use bunraku_model::catalog::{CatalogDiff, ListDiff};
use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of a node's catalogs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CatalogSummary {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    #[schema(value_type = String)]
    pub catalog: CatalogId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub compiled: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<usize>,
    pub state: CatalogState,
}

/// The state of a catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CatalogState {
    /// The newest compiled catalog, and it is released.
    Released,
    /// It is released, and a newer one is compiled.
    Outdated,
    /// The newest compiled catalog, held until it is released.
    Held,
}

/// The differences between two catalogs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CatalogDiffReply {
    #[schema(value_type = String)]
    pub before: CatalogId,
    #[schema(value_type = String)]
    pub after: CatalogId,
    #[schema(value_type = Object)]
    pub diff: CatalogDiff,
}

/// A request to compare a node's catalog with plain Puppet's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PuppetComparisonRequest {
    #[schema(value_type = String)]
    pub node: NodeName,
}

/// The differences between a node's catalog and the one that plain Puppet compiles from the same
/// inputs. `-`: only in plain Puppet's, `+`: only in ours.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PuppetComparison {
    #[schema(value_type = String)]
    pub node: NodeName,
    pub resources: usize,
    #[schema(value_type = Object)]
    pub diff: CatalogDiff,
    #[schema(value_type = Object)]
    pub classes: ListDiff,
    #[schema(value_type = Object)]
    pub tags: ListDiff,
}

impl PuppetComparison {
    pub fn is_equal(&self) -> bool {
        self.diff.is_empty() && self.classes.is_empty() && self.tags.is_empty()
    }
}

/// A request to show what a commit would change, and on which nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FleetDiffRequest {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    /// A commit, branch or tag of the environment's repository.
    pub commit: String,
    /// Compare with the catalogs of this commit instead of the newest ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Only these nodes. If empty, all nodes of the environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
}

/// The changes across the fleet, grouped by identical change.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FleetDiff {
    /// The commit that was compiled, in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    /// Nodes that were compared.
    pub compared: usize,
    /// The changes, most widespread first.
    pub groups: Vec<FleetChange>,
    /// Nodes for which nothing changes.
    pub unchanged: usize,
    /// Nodes without a catalog to compare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub without_catalog: Vec<NodeName>,
    /// Nodes for which the compile fails, grouped by message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FleetFailure>,
}

/// A change and the nodes that it affects.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FleetChange {
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
    #[schema(value_type = Object)]
    pub change: CatalogDiff,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FleetFailure {
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
    pub message: String,
}
