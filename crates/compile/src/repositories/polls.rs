//! Environments that look for new commits themselves.

use bunraku_control::{EnvironmentSettings, ServiceError, document, keys};
use bunraku_model::EnvironmentName;
use bunraku_store::{Compare, Transaction};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Repositories;
use bunraku_control::error::chain;

/// The newest commit that a poll found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct PollState {
    pub(super) at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<String>,
}

impl Repositories {
    pub(super) async fn poll_state(
        &self,
        name: &EnvironmentName,
    ) -> Result<Option<PollState>, ServiceError> {
        let found = document::read(&*self.store, &keys::environment_poll(name)).await?;
        Ok(found.map(|found| found.document))
    }

    /// Requests a deploy if the branch has a commit that no poll has seen.
    pub(super) async fn poll(
        &self,
        name: &EnvironmentName,
        settings: &EnvironmentSettings,
    ) -> Result<(), ServiceError> {
        let before = self.poll_state(name).await?.and_then(|state| state.head);
        let head = match self.code.branches(&settings.url).await {
            Err(error) if error.is_lasting() => {
                tracing::warn!(environment = %name, error = %chain(&error), "cannot poll a repository");
                before.clone()
            }
            Err(error) => return Err(ServiceError::internal("branches cannot be read", error)),
            Ok(found) => {
                let branch = settings.branch.as_ref().or(found.default.as_ref());
                branch.and_then(|branch| found.heads.get(branch)).cloned()
            }
        };
        if let Some(newest) = &head
            && before.as_ref() != Some(newest)
        {
            let deployed = self.environments.deployed(name).await?;
            let is_deployed =
                deployed.is_some_and(|deployed| deployed.code_id.0.starts_with(newest));
            if !is_deployed {
                self.environments.deploy_branch(name, "poll").await?;
            }
        }
        let state = PollState {
            at: self.clock.now(),
            head,
        };
        let transaction = Transaction::new()
            .when(Compare::Exists(keys::environment_settings(name)))
            .put(keys::environment_poll(name), document::encode(&state));
        self.store.commit(transaction).await?;
        Ok(())
    }
}
