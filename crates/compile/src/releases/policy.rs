//! The release policy of an environment.

use bunraku_model::EnvironmentName;
use serde::Deserialize;

use super::Releases;
use bunraku_control::ServiceError;
use bunraku_control::document;

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
