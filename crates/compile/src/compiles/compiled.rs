//! The stored results of compiling a node.
//!
//! `compiled/<node>` changes only when the node's catalog id does: followers
//! see a change exactly when something changed for the node.
//! `compile-status/<node>` records the time and the inputs of the node's last
//! compile.

use bunraku_control::keys;
use bunraku_model::{CatalogId, CodeId, ContentId, EnvironmentName, FactSetId, NodeName};
use bunraku_wire::api::CompileProblem;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The newest good catalog of a node, held until a release names it.
///
/// While this entry exists, the catalog is held under the name
/// `compiled/<node>`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CompiledCatalog {
    pub environment: EnvironmentName,
    pub catalog: CatalogId,
    /// The blob with its JSON text.
    pub content: ContentId,
    /// The first commit and facts that produced this catalog.
    pub code_id: CodeId,
    pub fact_set: FactSetId,
    pub compiled_at: Timestamp,
    /// Derived from the catalog id.
    pub config_version: String,
    pub resources: usize,
    /// The hash of the resources that it exports, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exports: Option<ContentId>,
    /// Nodes whose outputs it reads at run time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads_from_nodes: Vec<NodeName>,
}

/// The newest failure of a node; deleted by the next success.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CompileFailed {
    pub environment: EnvironmentName,
    pub code_id: CodeId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact_set: Option<FactSetId>,
    pub failed_at: Timestamp,
    /// At least one.
    pub problems: Vec<CompileProblem>,
}

/// Returns the `config_version` of a catalog. It shows only that something changed.
pub(crate) fn config_version(id: CatalogId) -> String {
    id.to_string()[..16].to_owned()
}

/// Returns the name under which a node's compiled catalog is held.
pub fn holder(node: &NodeName) -> String {
    keys::compiled(node)
}
