//! Running real resources in tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bunraku_model::{Catalog, LockName, NodeName};
use serde_json::{Value, json};

use crate::{
    ApplyOptions, Cancellation, CatalogPlan, Coordinator, FireResult, Firing, FleetLocks,
    LockAttempt, LockRenewal, LockRequest, LockState, NoCoordinator, PlanOptions, Registry,
    StepError, Summary, apply_plan,
};

/// Creates a catalog of these resources.
pub(crate) fn catalog(resources: Value) -> Catalog {
    serde_json::from_value(json!({"name": "test", "resources": resources})).expect("a catalog")
}

/// Applies resources. Backups and state go below `state`.
pub(crate) fn apply(state: &std::path::Path, resources: Value) -> Summary {
    run(state, resources, false, Arc::new(NoCoordinator))
}

/// Does the same in noop.
pub(crate) fn noop(state: &std::path::Path, resources: Value) -> Summary {
    run(state, resources, true, Arc::new(NoCoordinator))
}

/// Applies resources that reach other nodes.
pub(crate) fn run_in(fleet: &Arc<FakeFleet>, resources: Value, noop: bool) -> Summary {
    let state = tempfile::tempdir().expect("a directory");
    let fleet: Arc<FakeFleet> = Arc::clone(fleet);
    run(state.path(), resources, noop, fleet)
}

fn run(
    state: &std::path::Path,
    resources: Value,
    noop: bool,
    coordinator: Arc<dyn Coordinator>,
) -> Summary {
    let plan = CatalogPlan::new(
        &catalog(resources),
        &Registry::standard(),
        PlanOptions::default(),
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let cancellation = Cancellation::new().expect("a pipe");
    let how = ApplyOptions {
        noop,
        coordinator,
        ..ApplyOptions::new(state, cancellation, &())
    };
    apply_plan(&plan, how).expect("a record of the run")
}

/// Asserts that resources are refused before anything is applied.
pub(crate) fn assert_refused(resources: Value) {
    let options = PlanOptions::default();
    let plan = CatalogPlan::new(&catalog(resources.clone()), &Registry::standard(), options);
    assert!(plan.is_err(), "{resources}");
}

/// Returns one line for each resource, sorted: `Exec[x] failed: why`.
pub(crate) fn lines(summary: &Summary) -> String {
    let mut lines: Vec<String> = (summary.finished.iter())
        .map(|one| {
            let mut line = format!("{} {}", one.reference, one.outcome.status.as_str());
            for reason in &one.outcome.reasons {
                line.push_str(&format!(" ({reason})"));
            }
            if one.outcome.status == crate::Status::Failed {
                line.push_str(&format!(
                    ": {}",
                    one.outcome.message.as_deref().unwrap_or("")
                ));
            }
            line
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// A fleet that records the requests of a run. It knows every node but `nobody`.
#[derive(Default)]
pub(crate) struct FakeFleet {
    fired: Mutex<Vec<Firing>>,
    lock_calls: Mutex<Vec<String>>,
    standing: Option<LockState>,
    is_losing: bool,
    is_busy: bool,
}

impl FakeFleet {
    /// Returns a fleet in which every lock has this standing.
    pub(crate) fn with_lock(standing: LockState) -> Self {
        Self {
            standing: Some(standing),
            ..Self::default()
        }
    }

    /// Makes every renewal of a lock come too late.
    pub(crate) fn losing(self) -> Self {
        Self {
            is_losing: true,
            ..self
        }
    }

    /// Makes another node acquire every lock first.
    pub(crate) fn busy(self) -> Self {
        Self {
            is_busy: true,
            ..self
        }
    }

    pub(crate) fn fired(&self) -> Vec<Firing> {
        unpoisoned(&self.fired).clone()
    }

    /// Returns `look`, `acquire`, `renew` and `release` with their arguments, in order.
    pub(crate) fn lock_calls(&self) -> Vec<String> {
        unpoisoned(&self.lock_calls).clone()
    }

    fn called(&self, call: String) {
        unpoisoned(&self.lock_calls).push(call);
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Coordinator for FakeFleet {
    fn fire(&self, firing: &Firing, _: &Cancellation) -> Result<FireResult, StepError> {
        unpoisoned(&self.fired).push(firing.clone());
        let unknown: Vec<NodeName> = (firing.hosts.iter())
            .filter(|host| host.as_str() == "nobody")
            .cloned()
            .collect();
        let known = firing.hosts.len() - unknown.len();
        Ok(FireResult {
            message: format!("{} was fired for {known} host", firing.name),
            unknown,
            stopped: firing.reason.as_deref() == Some("a loop"),
        })
    }

    fn locks(&self) -> Result<&dyn FleetLocks, StepError> {
        Ok(self)
    }
}

impl FleetLocks for FakeFleet {
    fn state(
        &self,
        name: &LockName,
        session: &str,
        _: &Cancellation,
    ) -> Result<LockState, StepError> {
        self.called(format!("look {name} {session}"));
        Ok(self.standing.unwrap_or(LockState::Free))
    }

    fn acquire(&self, request: &LockRequest, _: &Cancellation) -> Result<LockAttempt, StepError> {
        self.called(format!(
            "acquire {} {} {}s {}",
            request.name,
            request.session,
            request.lease.as_secs(),
            request.reason.as_deref().unwrap_or_default()
        ));
        Ok(if self.is_busy {
            LockAttempt::Busy
        } else {
            LockAttempt::Acquired
        })
    }

    fn renew(
        &self,
        name: &LockName,
        token: u64,
        _: &Cancellation,
    ) -> Result<LockRenewal, StepError> {
        self.called(format!("renew {name} {token}"));
        Ok(if self.is_losing {
            LockRenewal::Lost
        } else {
            LockRenewal::Renewed
        })
    }

    fn release(&self, name: &LockName, token: u64, _: &Cancellation) -> Result<(), StepError> {
        self.called(format!("release {name} {token}"));
        Ok(())
    }
}
