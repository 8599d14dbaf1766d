//! Targets: pointers to released catalogs.
//!
//! `GET /v1/nodes/{node}/target` answers `If-None-Match` with 304 if there is nothing newer, so
//! polling is cheap. The catalog is at `/v1/nodes/{node}/catalogs/{id}`, and its files are at
//! `/v1/content/{id}`.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, ReleaseNumber};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RunMode;

/// The released catalog of a node. A held catalog is never named here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Target {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    #[schema(value_type = u64)]
    pub release: ReleaseNumber,
    #[schema(value_type = String)]
    pub catalog: CatalogId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    /// `noop`: the node may only report what it would change.
    pub mode: RunMode,
}
