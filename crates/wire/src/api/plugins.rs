//! Plugins of Puppet modules: types, providers, functions and facts that run on nodes.

use bunraku_model::{CodeId, ContentId, EnvironmentName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The plugins of a node's environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodePlugins {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    /// The deployed commit; nothing before the first deploy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    /// Nothing if the environment has no plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<PluginsFile>,
}

/// A gzip-compressed tar archive with `lib` and `facts.d` of all modules, merged. Its bytes are at
/// `/v1/content/{id}`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginsFile {
    #[schema(value_type = String)]
    pub content: ContentId,
    pub size: u64,
}
