//! Catalogs: what is kept, and what differs.

use bunraku_model::catalog::{CatalogDiff, ListDiff};
use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a node's catalogs stand.
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

/// What a catalog is to its node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CatalogState {
    /// The newest compiled one, and a release named it.
    Released,
    /// A release named it, and a newer one is compiled.
    Outdated,
    /// The newest compiled one, held until a release names it.
    Held,
}

/// What differs between two catalogs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CatalogDiffReply {
    #[schema(value_type = String)]
    pub before: CatalogId,
    #[schema(value_type = String)]
    pub after: CatalogId,
    #[schema(value_type = Object)]
    pub diff: CatalogDiff,
}

/// Whose catalog to compare with that of plain Puppet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PuppetComparisonRequest {
    #[schema(value_type = String)]
    pub node: NodeName,
}

/// What differs between a node's catalog and the one that plain Puppet
/// compiles from the same inputs: `-` only plain Puppet has, `+` only ours.
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

/// What would a commit change, on which nodes?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FleetDiffRequest {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    /// A commit, branch or tag of the environment's repository.
    pub commit: String,
    /// Compare with what this commit gives, instead of the newest catalogs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Only these; all of the environment when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
}

/// The answer, with equal changes told once.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FleetDiff {
    /// The commit that was compiled, in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    /// Nodes that were compared.
    pub compared: usize,
    /// What changes, the most widespread first.
    pub groups: Vec<FleetChange>,
    /// Nodes for which nothing changes.
    pub unchanged: usize,
    /// Nodes that have nothing to compare with, or nothing compiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub without_catalog: Vec<NodeName>,
    /// Nodes for which it does not compile, by equal message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FleetFailure>,
}

/// A change, and every node that it happens on.
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
