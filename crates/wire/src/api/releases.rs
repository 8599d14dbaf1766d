//! Releases: which compiled catalogs nodes receive, and who decided it.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeName, ReleaseNumber};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::approvals::Approval;

use super::RunMode;

/// The nodes of the environment that a release covers. Other nodes keep their catalogs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "to", rename_all = "snake_case")]
pub enum ReleaseTo {
    Everything,
    Nodes {
        #[schema(value_type = Vec<String>)]
        nodes: Vec<NodeName>,
    },
    /// The nodes that match a query when the release is created, and later nodes that match it when
    /// they join.
    Query {
        query: String,
    },
    /// A percentage of nodes. Raising it keeps the nodes already included.
    Percentage {
        percent: f64,
    },
}

/// A request to create a release.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateRelease {
    /// The newest release that the caller knows (0: none yet). The request is refused if there is a
    /// newer one. Default: the current newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub parent: Option<ReleaseNumber>,
    #[serde(flatten)]
    pub to: ReleaseTo,
    pub mode: RunMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A rollback: a new release with the catalogs of an old one. Nodes that joined later are compiled
/// from its code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RollbackRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub parent: Option<ReleaseNumber>,
    /// The release to go back to. Default: the one before the newest. Releases that only added
    /// nodes do not count, and a second rollback does not undo the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub release: Option<ReleaseNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The origin of a release.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum ReleaseKind {
    /// An operator created it.
    Created(ReleaseTo),
    /// Created automatically by the environment's policy.
    Auto,
    /// Nodes that joined after the release whose rule covers them.
    Added {
        #[schema(value_type = u64)]
        rule_of: ReleaseNumber,
    },
    /// A rollback to an older map.
    Rollback {
        #[schema(value_type = u64)]
        release: ReleaseNumber,
    },
}

/// A release without its map.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseSummary {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    #[schema(value_type = u64)]
    pub number: ReleaseNumber,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub parent: Option<ReleaseNumber>,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Nested, because a list of nodes is also called `nodes`.
    pub kind: ReleaseKind,
    pub mode: RunMode,
    /// The commit of the catalogs that it introduced, if it is a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    /// The number of nodes in its map.
    pub nodes: usize,
    /// The number of these that differ from its parent's map.
    pub changed: usize,
}

/// A node's entry in a release's map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseEntry {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = String)]
    pub catalog: CatalogId,
    pub mode: RunMode,
    /// The release that introduced the catalog.
    #[schema(value_type = u64)]
    pub since: ReleaseNumber,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
}

/// A release with its map.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseDetail {
    #[serde(flatten)]
    pub summary: ReleaseSummary,
    pub state: ReleaseState,
    pub map: Vec<ReleaseEntry>,
    /// The code that nodes get if they join later. The first rule that covers a node decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub join_rules: Vec<ReleaseJoinRule>,
    /// Code that was rolled back. It is not released automatically until someone releases it to all
    /// nodes again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub rolled_back: Vec<CodeId>,
    /// Nodes of the environment without a catalog. Only known for the newest release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_catalog: Vec<NodeWithoutCatalog>,
    /// `false` while nodes that joined later are compiled from the code of the newest release.
    #[serde(default)]
    pub is_complete: bool,
}

/// The code that nodes get if they join after a release.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseJoinRule {
    /// The release that introduced the rule.
    #[schema(value_type = u64)]
    pub release: ReleaseNumber,
    #[schema(value_type = String)]
    pub code_id: CodeId,
    pub mode: RunMode,
    pub covers: ReleaseTo,
}

/// A node that has no catalog.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeWithoutCatalog {
    #[schema(value_type = String)]
    pub node: NodeName,
    pub reason: String,
}

/// Nodes that a release leaves on the same code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseGroup {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    pub mode: RunMode,
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
}

impl ReleaseDetail {
    /// Returns the nodes of the release, grouped by code and mode. The largest group comes first.
    pub fn groups(&self) -> Vec<ReleaseGroup> {
        let mut groups: Vec<ReleaseGroup> = Vec::new();
        for entry in &self.map {
            let is_same = |group: &&mut ReleaseGroup| {
                group.code_id == entry.code_id && group.mode == entry.mode
            };
            match groups.iter_mut().find(is_same) {
                Some(group) => group.nodes.push(entry.node.clone()),
                None => groups.push(ReleaseGroup {
                    code_id: entry.code_id.clone(),
                    mode: entry.mode,
                    nodes: vec![entry.node.clone()],
                }),
            }
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.nodes.len()));
        groups
    }
}

/// The state of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseState {
    /// The newest release; its targets are being written.
    Applying,
    /// The newest release, and all targets are up to date.
    Current,
    /// A newer release replaced it.
    Replaced,
}

/// The stored releases of an environment, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseList {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<ReleaseHold>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ReleaseState>,
    /// The number of nodes with a compiled catalog that is not released.
    pub waiting: usize,
    /// Code that was rolled back, and is not released automatically.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub rolled_back: Vec<CodeId>,
    pub releases: Vec<ReleaseSummary>,
}

/// A hold. While it is in place, no newer catalogs are released automatically in the environment.
/// Nodes that join get the code that is released already.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseHold {
    pub reason: String,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// A request to hold releases.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HoldRequest {
    /// The reason, shown wherever the environment is shown.
    pub reason: String,
}

/// The answer to a request for a release.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseReply {
    /// Absent if every chosen node already has its catalog.
    pub release: Option<ReleaseSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<ReleaseHold>,
    /// The request for approval, if the environment requires one. Nothing is released yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_release_reads_back_as_it_was_written() {
        let node = NodeName::new("web-1").expect("a name");
        let created = [
            ReleaseTo::Everything,
            ReleaseTo::Nodes { nodes: vec![node] },
            ReleaseTo::Query {
                query: "nodes { }".to_owned(),
            },
            ReleaseTo::Percentage { percent: 12.5 },
        ];
        let number = ReleaseNumber(3);
        let others = [
            ReleaseKind::Auto,
            ReleaseKind::Added { rule_of: number },
            ReleaseKind::Rollback { release: number },
        ];
        let kinds = created.into_iter().map(ReleaseKind::Created).chain(others);
        for kind in kinds {
            let summary = ReleaseSummary {
                environment: EnvironmentName::new("production").expect("a name"),
                number: ReleaseNumber(4),
                parent: Some(number),
                created: Timestamp::UNIX_EPOCH,
                by: "operator".to_owned(),
                reason: None,
                kind,
                mode: RunMode::Noop,
                code_id: None,
                nodes: 7,
                changed: 1,
            };
            let detail = ReleaseDetail {
                summary,
                state: ReleaseState::Current,
                map: Vec::new(),
                join_rules: vec![ReleaseJoinRule {
                    release: number,
                    code_id: CodeId("c1".to_owned()),
                    mode: RunMode::Enforce,
                    covers: ReleaseTo::Percentage { percent: 50.0 },
                }],
                rolled_back: vec![CodeId("c2".to_owned())],
                without_catalog: Vec::new(),
                is_complete: true,
            };
            let text = serde_json::to_string(&detail).expect("plain data");
            let back: ReleaseDetail = serde_json::from_str(&text).expect("own text");
            assert_eq!(back, detail, "{text}");
        }
    }
}

/// A release without the approval that the environment requires.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OverrideRelease {
    pub request: CreateRelease,
    /// The reason, shown with the request for approval.
    pub reason: String,
}
