//! Results of checks that no server performs: confirmations, and commands on operators' machines.

use bunraku_control::{ServiceError, document, keys};
use bunraku_model::RunId;
use bunraku_plan::run::{CheckResult, RunWait};
use bunraku_store::{Compare, Transaction, settle};
use serde::{Deserialize, Serialize};

use super::Orchestration;

/// The result of a check, as an operator reported it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredCheckResult {
    pub(super) by: String,
    pub(super) passed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
}

impl Orchestration {
    /// Reports the result of a check that no server performs: a confirmation, or a command on the
    /// operator's machine.
    pub async fn report_check(
        &self,
        run: RunId,
        result: CheckResult,
        by: &str,
    ) -> Result<(), ServiceError> {
        let waits = self.show(run).await?.waits;
        let open = waits.iter().find_map(|wait| match wait {
            RunWait::Check {
                gate, check, what, ..
            } if !what.is_automatic()
                && result.gate.is_none_or(|wanted| wanted == *gate)
                && result.check.is_none_or(|wanted| wanted == *check) =>
            {
                Some((*gate, *check))
            }
            _ => None,
        });
        let Some((gate, check)) = open else {
            return Err(ServiceError::conflict(
                format!("run {run} does not wait for a confirmation"),
                format!("see what it waits for with `bunraku run show {run}`"),
            ));
        };
        let key = keys::run_check(run, gate, check);
        let stored = StoredCheckResult {
            by: by.to_owned(),
            passed: result.passed,
            message: result.message,
        };
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put(key, document::encode(&stored));
        settle(&*self.inner.store, transaction).await?;
        Ok(())
    }
}
