//! Releases: which compiled catalogs nodes get, by whose decision.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeName, ReleaseNumber};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RunMode;

/// Which nodes of the environment a release is for. Others keep what they have.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "to", rename_all = "snake_case")]
pub enum ReleaseTo {
    Everything,
    Nodes {
        #[schema(value_type = Vec<String>)]
        nodes: Vec<NodeName>,
    },
    /// What a query over the nodes finds when the release is made.
    Query {
        query: String,
    },
    /// So many of a hundred, always the same ones: those of 10 % are among
    /// those of 20 %.
    Percentage {
        percent: f64,
    },
}

/// Make a release.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateRelease {
    /// The release that the caller has seen as the newest (0: none yet).
    /// Refused if there is a newer one. Without it, the newest of the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub parent: Option<ReleaseNumber>,
    #[serde(flatten)]
    pub to: ReleaseTo,
    pub mode: RunMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Go back: a new release with the map of an old one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RollbackRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub parent: Option<ReleaseNumber>,
    /// Whose map; the one before the newest when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub release: Option<ReleaseNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where a release came from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum ReleaseKind {
    /// A person decided.
    Created(ReleaseTo),
    /// By the environment's policy, as catalogs were compiled.
    Auto,
    /// Nodes that came after the release whose rule covers them.
    Added {
        #[schema(value_type = u64)]
        rule_of: ReleaseNumber,
    },
    /// Back to an older map.
    Rollback {
        #[schema(value_type = u64)]
        release: ReleaseNumber,
    },
}

/// A release, without its map.
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
    /// Not among the other members: a list of nodes is also called `nodes`.
    pub kind: ReleaseKind,
    pub mode: RunMode,
    /// The commit of what it brought, where that is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    /// In its map.
    pub nodes: usize,
    /// Of these, other than in its parent's map.
    pub changed: usize,
}

/// A node's line in a release's map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseEntry {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = String)]
    pub catalog: CatalogId,
    pub mode: RunMode,
    /// The release that brought it.
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
}

/// How far a release has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseState {
    /// The newest; its nodes are being told.
    Applying,
    /// The newest, and every node's target is what it says.
    Current,
    /// A newer one took its place.
    Replaced,
}

/// All releases of an environment that are kept, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseList {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<ReleaseHold>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ReleaseState>,
    /// Compiled catalogs that no release names, by node.
    pub waiting: usize,
    pub releases: Vec<ReleaseSummary>,
}

/// Nothing is released by itself in an environment while this stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseHold {
    pub reason: String,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// Hold back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HoldRequest {
    /// Shown wherever the environment is.
    pub reason: String,
}

/// What became of a request for a release.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseReply {
    /// Nothing, if every chosen node has what it would get.
    pub release: Option<ReleaseSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<ReleaseHold>,
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
            };
            let text = serde_json::to_string(&detail).expect("plain data");
            let back: ReleaseDetail = serde_json::from_str(&text).expect("own text");
            assert_eq!(back, detail, "{text}");
        }
    }
}
