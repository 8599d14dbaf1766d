//! Targets: the released catalog that each node should apply.
//!
//! A node's target is written only by applying a release. Each server keeps
//! all targets in memory ([`TargetBoard`]), so that a check for a newer target
//! costs no read of the store, however many nodes ask.

mod board;

use bunraku_model::{CatalogId, ContentId};
use bunraku_wire::api::{RunMode, Target};
use serde::{Deserialize, Serialize};

pub use board::{KnownTarget, TargetBoard};

/// The stored form of a node's target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredTarget {
    #[serde(flatten)]
    pub target: Target,
    /// The blob with the catalog's JSON text.
    pub content: ContentId,
    /// The catalog of the previous target: a node that is still applying it may
    /// fetch the files that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<CatalogId>,
}

impl StoredTarget {
    /// Returns a tag that changes exactly when something changes for the node.
    pub fn entity_tag(&self) -> String {
        let Target {
            environment,
            release,
            catalog,
            mode,
            ..
        } = &self.target;
        let mode = match mode {
            RunMode::Enforce => "enforce",
            RunMode::Noop => "noop",
        };
        format!("\"{environment}-{release}-{}-{mode}\"", catalog.0.short())
    }

    /// Returns the catalogs that the node may read.
    pub fn catalogs(&self) -> Vec<CatalogId> {
        std::iter::once(self.target.catalog)
            .chain(self.previous)
            .collect()
    }
}
