//! Targets: which released catalog each node should carry out.
//!
//! `targets/<node>` is written only by applying a release. Each server keeps
//! all of them in memory ([`TargetBoard`]), so that "is there something
//! newer?" costs no read of the store, however many nodes ask.

mod board;

use bunraku_model::{CatalogId, ContentId};
use bunraku_wire::api::{RunMode, Target};
use serde::{Deserialize, Serialize};

pub use board::{KnownTarget, TargetBoard};

/// What the store has of a node's target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredTarget {
    #[serde(flatten)]
    pub target: Target,
    /// The blob with the catalog's JSON text.
    pub content: ContentId,
    /// The catalog of the target before this one: a node that is at work on
    /// it may still fetch what it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<CatalogId>,
}

impl StoredTarget {
    /// Changes exactly when something changes for the node.
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

    /// The catalogs that the node may read.
    pub fn catalogs(&self) -> Vec<CatalogId> {
        std::iter::once(self.target.catalog)
            .chain(self.previous)
            .collect()
    }
}
