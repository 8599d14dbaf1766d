//! The operators' settings for an environment: `environments/<name>/settings`.
//!
//! Absent here: creating and changing environments (`environments`).

use bunraku_model::{EnvironmentName, OrderingMode, RepositoryName};
use bunraku_store::Store;
use bunraku_wire::api::ReleasePolicy;
use bunraku_wire::api::approvals::ApprovalPolicy;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ServiceError, document, keys};

/// The settings of an environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EnvironmentSettings {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    pub policy: ReleasePolicy,
    /// Facts that do not count. If absent, the server's own settings apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile: Option<Vec<String>>,
    /// The ordering mode of catalogs that are compiled. If absent, the engine decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderingMode>,
    /// The control repository whose branch this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryName>,
    /// The interval between two looks for new commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_seconds: Option<u64>,
    /// An operator allows the repository to run programs on servers (`compiler: external`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allows_external_compiler: bool,
    /// Whether the facts of nodes decide which state files and data they get.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fact_targeting: bool,
    /// What requires approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalPolicy>,
    pub created: Timestamp,
}

impl EnvironmentSettings {
    /// Reads the settings of an environment, if it exists.
    pub async fn read(
        store: &dyn Store,
        environment: &EnvironmentName,
    ) -> Result<Option<Self>, ServiceError> {
        let key = keys::environment_settings(environment);
        let found = document::read(store, &key).await?;
        Ok(found.map(|found| found.document))
    }
}
