//! The stored form of releases.
//!
//! A release's map may be large and differs little from its parent's. So it is
//! two blobs: a *base*, shared with the releases before it, and the *changes*
//! to it. When there are too many changes, a new base is written.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::{CatalogId, CodeId, ContentId, NodeName, ReleaseNumber};
use bunraku_wire::api::{ReleaseEntry, ReleaseSummary, RunMode};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::join_rules::JoinRules;

/// `releases/<environment>/<number>`: written once and never changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Release {
    /// A random id from the server that created the release. After an unknown
    /// outcome, it shows whether the stored release is the one that was
    /// written.
    pub id: Uuid,
    pub summary: ReleaseSummary,
    pub map: MapAddress,
    /// What nodes get that join later. Absent in releases of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_rules: Option<JoinRules>,
    /// The code of the catalogs that it introduced.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub codes: BTreeSet<CodeId>,
}

/// The location of a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct MapAddress {
    pub base: ContentId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ContentId>,
}

/// `release-heads/<environment>`: the newest release. Its revision guards
/// everything that depends on it: creating the next release, applying it, and
/// removing holds on catalogs that only older releases named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ReleaseHead {
    pub number: ReleaseNumber,
    /// Number of times that holds on catalogs were removed. A server that is
    /// creating a release meanwhile finds the head changed, and holds its
    /// catalogs again.
    #[serde(default)]
    pub collections: u64,
}

/// `release-applied/<environment>`: the newest release that all targets reflect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AppliedRelease {
    pub number: ReleaseNumber,
    /// Absent until every node that the join rules cover has a catalog, or a
    /// problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<JoinOutcome>,
}

/// The nodes that could not get the catalog of their join rule.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct JoinOutcome {
    /// The reason for each node; not all nodes, if there are many.
    pub problems: BTreeMap<NodeName, String>,
}

/// A node's entry in a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct MapEntry {
    /// Absent if a rollback withdrew the node's catalog. The node has no target
    /// until it has a catalog that the join rules allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogId>,
    pub mode: RunMode,
    /// The release that introduced this entry. Unchanged entries keep it, so
    /// the cost of a release depends on its changes and not on its size.
    pub since: ReleaseNumber,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_id: Option<CodeId>,
}

pub(crate) type ReleaseMap = BTreeMap<NodeName, MapEntry>;

/// Differences from a base; `None` for a removed node.
pub(crate) type MapChanges = BTreeMap<NodeName, Option<MapEntry>>;

/// Returns the changes that lead from one map to another.
pub(crate) fn changes_between(base: &ReleaseMap, map: &ReleaseMap) -> MapChanges {
    let gone = base.keys().filter(|node| !map.contains_key(*node));
    let mut changes: MapChanges = gone.map(|node| (node.clone(), None)).collect();
    for (node, entry) in map {
        if base.get(node) != Some(entry) {
            changes.insert(node.clone(), Some(entry.clone()));
        }
    }
    changes
}

/// Returns the map with the changes applied.
pub(crate) fn with_changes(mut base: ReleaseMap, changes: MapChanges) -> ReleaseMap {
    for (node, entry) in changes {
        match entry {
            Some(entry) => base.insert(node, entry),
            None => base.remove(&node),
        };
    }
    base
}

impl MapEntry {
    /// Returns an entry that withdraws the node's catalog.
    pub(super) fn withdrawn(since: ReleaseNumber) -> Self {
        Self {
            catalog: None,
            mode: RunMode::Enforce,
            since,
            code_id: None,
        }
    }

    /// Returns true if nothing changes for the node.
    pub(super) fn is_same_for_the_node(&self, other: &Self) -> bool {
        self.catalog == other.catalog && self.mode == other.mode
    }

    /// Returns the entry for display, unless the node's catalog is withdrawn.
    pub(super) fn line(&self, node: &NodeName) -> Option<ReleaseEntry> {
        Some(ReleaseEntry {
            node: node.clone(),
            catalog: self.catalog?,
            mode: self.mode,
            since: self.since,
            code_id: self.code_id.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_map() -> impl Strategy<Value = ReleaseMap> {
        let entry =
            (0..4_u8, any::<bool>(), 0..5_u64).prop_map(|(catalog, noop, since)| MapEntry {
                catalog: (catalog > 0).then(|| CatalogId(ContentId::of(&[catalog]))),
                mode: if noop {
                    RunMode::Noop
                } else {
                    RunMode::Enforce
                },
                since: ReleaseNumber(since),
                code_id: None,
            });
        let name = "[a-d]".prop_map(|name| NodeName::new(name).expect("a name"));
        proptest::collection::btree_map(name, entry, 0..5)
    }

    proptest! {
        #[test]
        fn changes_lead_from_any_map_to_any_other(base in any_map(), map in any_map()) {
            let changes = changes_between(&base, &map);
            let text = serde_json::to_vec(&changes).expect("plain data");
            let back: MapChanges = serde_json::from_slice(&text).expect("own text");
            prop_assert_eq!(with_changes(base, back), map);
        }
    }
}
