//! The release policy of an environment.

use bunraku_control::{EnvironmentSettings, ServiceError, keys};
use bunraku_model::EnvironmentName;
use bunraku_wire::api::ReleasePolicy;

use super::Releases;

/// Returns the environment whose settings are at a key below [`keys::ENVIRONMENTS`].
pub(super) fn parse_settings(key: &str) -> Option<EnvironmentName> {
    let (environment, document) = keys::parse_environment_key(key)?;
    (document == "settings").then_some(environment)
}

impl Releases {
    /// Returns the policy. An environment without settings releases only manually.
    pub(super) async fn policy(
        &self,
        environment: &EnvironmentName,
    ) -> Result<ReleasePolicy, ServiceError> {
        let settings = EnvironmentSettings::read(&*self.store, environment).await?;
        Ok(settings.map_or(ReleasePolicy::Manual, |settings| settings.policy))
    }
}
