//! Run methods: the ways to execute a run.
//!
//! A method is a value with two steps. `prepare` determines what to do and changes nothing, so that
//! a run that cannot start says so with its reason. Its result is executed once. To add a method,
//! implement [`RunMethod`] and pass it to [`super::Methods`].

use std::sync::Arc;

use async_trait::async_trait;
use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeRunId, ReleaseNumber};
use bunraku_process::WorkLog;
use bunraku_wire::api::ordered_runs::{PlannedCatalog, PlannedWork};
use bunraku_wire::api::{Cause, RunEnding, RunFailure, RunMode, RunSubject};
use tokio_util::sync::CancellationToken;

use crate::reports::Recorder;

/// A run order, as a method receives it.
#[derive(Clone, Debug)]
pub struct RunOrder {
    pub id: NodeRunId,
    /// The mode according to the request, the settings and the windows. A method may be stricter,
    /// never less strict.
    pub mode: RunMode,
    pub subject: RunSubject,
    pub tags: Vec<String>,
    /// The causes to pass on to everything that the run triggers.
    pub causes: Vec<Cause>,
    /// The number of further causes.
    pub more_causes: u64,
    /// The records of the run's programs.
    pub work: WorkLog,
}

impl RunOrder {
    /// Returns the environment that the request names for this run only.
    pub(super) fn environment(&self) -> Option<&EnvironmentName> {
        match &self.subject {
            RunSubject::Configured { environment, .. } => environment.as_ref(),
            RunSubject::Released | RunSubject::Catalog { .. } => None,
        }
    }

    /// Returns the catalog that an ordered run planned for this node.
    pub fn planned_catalog(&self) -> Option<&PlannedCatalog> {
        match &self.subject {
            RunSubject::Catalog { planned, .. } => planned.as_deref(),
            RunSubject::Configured { planned, .. } => planned.as_deref()?.catalog(),
            RunSubject::Released => None,
        }
    }

    /// Returns why this method must not execute the order: an ordered run planned other work.
    pub(super) fn mismatch(&self, method: &dyn RunMethod) -> Option<String> {
        let RunSubject::Configured {
            planned: Some(planned),
            ..
        } = &self.subject
        else {
            return None;
        };
        let fits = match planned.as_ref() {
            PlannedWork::Catalog(_) => method.applies_released(),
            PlannedWork::Method { method: name, .. } => {
                !method.applies_released() && name == method.name()
            }
            PlannedWork::Nothing => false,
        };
        let now = if method.applies_released() {
            format!("{}, with released catalogs", method.name())
        } else {
            method.name().to_owned()
        };
        (!fits).then(|| {
            format!("{planned} was planned, but the node's run method is {now}; plan the run again")
        })
    }
}

/// The details of a run that a report contains at its start.
#[derive(Clone, Debug)]
pub struct RunDescription {
    pub mode: RunMode,
    pub environment: Option<EnvironmentName>,
    pub release: Option<ReleaseNumber>,
    pub catalog: Option<CatalogId>,
    pub code_id: Option<CodeId>,
    pub from_cache: bool,
    pub resources: u64,
}

impl RunDescription {
    pub fn new(mode: RunMode) -> Self {
        Self {
            mode,
            environment: None,
            release: None,
            catalog: None,
            code_id: None,
            from_cache: false,
            resources: 0,
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEnd {
    pub ending: RunEnding,
    pub message: Option<String>,
    /// The failure, if the ending alone does not explain it.
    pub failure: Option<RunFailure>,
}

/// The reason why a run did not start.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RunStartError {
    pub message: String,
    /// [`RunEnding::NotStarted`], unless a more specific ending applies.
    pub ending: RunEnding,
    pub failure: Option<RunFailure>,
}

impl RunStartError {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ending: RunEnding::NotStarted,
            failure: None,
        }
    }

    /// Creates a reason that includes the error and all its sources.
    pub fn because(what: &str, error: &dyn std::error::Error) -> Self {
        Self::new(format!("{what}: {}", bunraku_model::error_chain(error)))
    }
}

/// A way to execute runs.
#[async_trait]
pub trait RunMethod: Send + Sync {
    /// Returns the name that reports use.
    fn name(&self) -> &'static str;

    /// Returns whether a request may name the environment of its run.
    fn knows_environments(&self) -> bool {
        false
    }

    /// Returns whether runs apply released catalogs.
    fn applies_released(&self) -> bool {
        false
    }

    async fn prepare(&self, order: &RunOrder) -> Result<Box<dyn PreparedRun>, RunStartError>;
}

/// A run that can start.
#[async_trait]
pub trait PreparedRun: Send {
    fn describe(&self) -> RunDescription;

    /// Executes the run. Ends early once `stop` is cancelled, but not before everything that it
    /// started has ended.
    async fn execute(self: Box<Self>, recorder: Arc<Recorder>, stop: CancellationToken) -> RunEnd;
}
