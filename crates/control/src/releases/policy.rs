//! What releases ask of others: the environment's policy, and queries.

use async_trait::async_trait;
use bunraku_model::{EnvironmentName, NodeName};
use serde::Deserialize;

use super::Releases;
use crate::ServiceError;
use crate::document;

/// Changes below this prefix may change a policy.
pub(super) const SETTINGS: &str = "environments/";

/// Who decides when a compiled catalog is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Policy {
    /// As it is compiled.
    Auto,
    /// When a person says so.
    #[default]
    Manual,
}

/// What releases read of an environment's settings.
#[derive(Deserialize)]
struct Settings {
    #[serde(default)]
    policy: Policy,
}

/// Whose settings a key below [`SETTINGS`] is.
pub(super) fn parse_settings(key: &str) -> Option<EnvironmentName> {
    let name = key.strip_prefix(SETTINGS)?.strip_suffix("/settings")?;
    EnvironmentName::new(name).ok()
}

/// Which nodes a query finds.
#[async_trait]
pub trait Targeting: Send + Sync + 'static {
    async fn nodes_matching(&self, query: &str) -> Result<Vec<NodeName>, ServiceError>;
}

/// Queries are refused: there is no index.
#[derive(Clone, Copy, Debug)]
pub struct NoQueries;

#[async_trait]
impl Targeting for NoQueries {
    async fn nodes_matching(&self, _: &str) -> Result<Vec<NodeName>, ServiceError> {
        Err(ServiceError::invalid(
            "this server has no index to query: name the nodes, or a percentage",
        ))
    }
}

impl Releases {
    /// An environment that nobody set up holds everything back.
    pub(super) async fn policy(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Policy, ServiceError> {
        let key = format!("{SETTINGS}{environment}/settings");
        let settings = document::read::<Settings>(&*self.store, &key).await?;
        Ok(settings.map_or(Policy::Manual, |settings| settings.document.policy))
    }
}
