//! `lock`: one node of the fleet holds it, for example to be the database master.
//!
//! The first node that requests the lock holds it. A lock that another node holds is
//! not an error. It is a change, and notifies, only when this node acquires or releases
//! it. A run on the holder renews the lease while it observes, in noop too: a run is a
//! sign of life, and nothing changes.

use std::time::Duration;

use bunraku_model::LockName;
use serde_json::json;

use crate::coordination::{LockAttempt, LockRenewal, LockRequest, LockState};
use crate::spec::{argument, parameter};
use crate::{
    ApplyResult, Change, Declaration, Observation, Provider, ReadAccess, Refusal, ResourceType,
    StateFunction, StepError, TypeSpec,
};

/// The session name. It is the same holder in every run.
const SESSION: &str = "engine";

const DEFAULT_LEASE: Duration = Duration::from_secs(2 * 3_600);

/// The `lock` type.
pub(super) struct Lock;

static SPEC: TypeSpec = TypeSpec {
    name: "lock",
    aliases: &[],
    summary: "Holds a lock that the whole fleet shares, unless another node holds it. Use it to elect a leader.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`held` or `released`"),
        parameter(
            "lease",
            "how long the lock is held without a run, such as `2h`",
        ),
        parameter(
            "reason",
            "shown to everyone who looks at the lock or waits for it",
        ),
    ],
    states: &[
        StateFunction {
            function: "lock.held",
            implies: &[("ensure", "held")],
            arguments: &[argument("name", "name")],
        },
        StateFunction {
            function: "lock.released",
            implies: &[("ensure", "released")],
            arguments: &[argument("name", "name")],
        },
    ],
    example: r#"[{"type": "Lock", "title": "db-master", "parameters": {"ensure": "held", "lease": "2h"}}]"#,
};

/// The desired state of the lock.
pub(super) struct DesiredLock {
    held: bool,
    request: LockRequest,
}

impl ResourceType for Lock {
    type Desired = DesiredLock;
    type Observed = LockState;

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredLock, Refusal> {
        let held = match declaration.text("ensure")?.as_deref() {
            None | Some("held") => true,
            Some("released") => false,
            Some(_) => return Err(declaration.refuse("ensure", "`held` or `released`")),
        };
        let name = LockName::new(declaration.name()?);
        Ok(DesiredLock {
            held,
            request: LockRequest {
                name: name.map_err(|error| Refusal::other(error.to_string()))?,
                session: SESSION.to_owned(),
                lease: declaration.span("lease")?.unwrap_or(DEFAULT_LEASE),
                reason: declaration.text("reason")?,
            },
        })
    }

    fn changes(&self, desired: &DesiredLock, observed: &LockState) -> Vec<Change> {
        match (desired.held, observed) {
            (true, LockState::Free) => {
                vec![Change::new("ensure", json!("released"), json!("held"))]
            }
            (false, LockState::Own { .. }) => {
                vec![Change::new("ensure", json!("held"), json!("released"))]
            }
            _ => Vec::new(),
        }
    }

    fn undoes_drift(&self, _desired: &DesiredLock, _observed: &LockState) -> bool {
        false
    }
}

impl Provider for Lock {
    fn observe(
        &self,
        desired: &DesiredLock,
        access: &ReadAccess<'_>,
    ) -> Result<LockState, StepError> {
        let name = &desired.request.name;
        let standing = access.lock_standing(name, SESSION)?;
        match standing {
            LockState::Own { token } if desired.held => match access.renew_lock(name, token)? {
                LockRenewal::Renewed => Ok(standing),
                // As far as this run knows, a lost lock is free: trying to acquire it shows more.
                LockRenewal::Lost => Ok(LockState::Free),
            },
            _ => Ok(standing),
        }
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let (desired, observed, _, write_access) = step.parts();
        let name = &desired.request.name;
        if let LockState::Own { token } = observed {
            write_access.release_lock(name, *token)?;
            return Ok(ApplyResult::default());
        }
        match write_access.acquire_lock(&desired.request)? {
            LockAttempt::Acquired => Ok(ApplyResult::default()),
            LockAttempt::Busy => Err(StepError::new(format!(
                "another node acquired `{name}` at the same time"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::types::testing::{FakeFleet, lines, run_in};

    fn lock(parameters: Value) -> Value {
        json!([{"type": "Lock", "title": "db", "parameters": parameters}])
    }

    /// Checks the fleet's record of calls for the lock `db`, and the outcome of the resource.
    fn check(standing: LockState, noop: bool, parameters: Value, expected: &[&str]) -> String {
        let fleet = Arc::new(FakeFleet::with_lock(standing));
        let summary = run_in(&fleet, lock(parameters), noop);
        assert_eq!(fleet.lock_calls(), expected, "{}", lines(&summary));
        lines(&summary)
    }

    #[test]
    fn a_free_lock_is_acquired_with_its_lease_and_reason() {
        let parameters = json!({"lease": "30m", "reason": "master"});
        let acquired = ["look db engine", "acquire db engine 1800s master"];
        let lines = check(LockState::Free, false, parameters, &acquired);
        assert_eq!(lines, "Lock[db] changed");
    }

    #[test]
    fn a_lock_of_its_own_is_renewed_with_its_token_in_noop_too() {
        let renewed = ["look db engine", "renew db 3"];
        for noop in [false, true] {
            let lines = check(LockState::Own { token: 3 }, noop, json!({}), &renewed);
            assert_eq!(lines, "Lock[db] unchanged");
        }
    }

    #[test]
    fn a_lock_that_others_hold_is_left_to_them() {
        let looked = ["look db engine"];
        for ensure in ["held", "released"] {
            let parameters = json!({ "ensure": ensure });
            let lines = check(LockState::Others, false, parameters, &looked);
            assert_eq!(lines, "Lock[db] unchanged");
        }
    }

    #[test]
    fn a_lock_is_released_by_its_token_and_not_in_noop() {
        let (parameters, own) = (json!({"ensure": "released"}), LockState::Own { token: 7 });
        let released = ["look db engine", "release db 7"];
        check(own, false, parameters.clone(), &released);
        let lines = check(own, true, parameters, &released[..1]);
        assert!(lines.starts_with("Lock[db] pending"), "{lines}");
    }

    #[test]
    fn a_lock_that_was_lost_is_acquired_again() {
        let fleet = Arc::new(FakeFleet::with_lock(LockState::Own { token: 3 }).losing());
        let summary = run_in(&fleet, lock(json!({})), false);
        let calls = ["look db engine", "renew db 3", "acquire db engine 7200s "];
        assert_eq!(fleet.lock_calls(), calls, "{}", lines(&summary));
    }

    #[test]
    fn losing_the_race_for_a_lock_fails() {
        let fleet = Arc::new(FakeFleet::with_lock(LockState::Free).busy());
        let summary = run_in(&fleet, lock(json!({})), false);
        assert!(
            lines(&summary).contains("another node acquired `db`"),
            "{}",
            lines(&summary)
        );
    }
}
