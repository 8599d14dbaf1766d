//! What a node should look like: the pointer to its released catalog.
//!
//! `GET /v1/nodes/{node}/target` answers `If-None-Match` with 304 as long as
//! nothing is newer, which is all that asking costs. The catalog itself is at
//! `/v1/nodes/{node}/catalogs/{id}`, the files it refers to at
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
    /// `noop`: the node may only say what it would change.
    pub mode: RunMode,
}
