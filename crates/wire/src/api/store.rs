//! The places of data, and what they hold.

use bunraku_model::{ContentId, ContentPlace};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::HistoryStatus;

/// Where the fleet keeps its data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StoreStatus {
    /// `embedded` or `etcd`.
    pub kind: String,
    pub content: ContentStatus,
    /// Why S3 cannot be used now, as this server sees it. Absent if it works or is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3_problem: Option<String>,
    pub history: HistoryStatus,
}

/// The places of content: catalogs, files, fact sets, code, packages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContentStatus {
    /// The place that new content goes to: `default` or `s3`.
    #[schema(value_type = String)]
    pub active: ContentPlace,
    /// The place that content is moved away from. Absent if nothing is moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub leaving: Option<ContentPlace>,
    pub places: Vec<ContentPlaceStatus>,
    /// Why the move does not advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Number of contents that cannot be moved.
    #[serde(default)]
    pub stuck_count: usize,
    /// Some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<StuckContent>,
}

/// One place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContentPlaceStatus {
    /// `default` or `s3`.
    #[schema(value_type = String)]
    pub place: ContentPlace,
    /// `true` if the server that answers has settings for it.
    pub is_configured: bool,
    pub contents: u64,
    /// Their size before compression.
    pub bytes: u64,
}

/// A content that cannot be moved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StuckContent {
    #[schema(value_type = String)]
    pub id: ContentId,
    pub why: String,
}

/// A request to move all content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MoveContentRequest {
    /// `default` or `s3`.
    #[schema(value_type = String)]
    pub to: ContentPlace,
}
