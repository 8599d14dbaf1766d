//! What carries a run out.
//!
//! A method is a value with two steps: `prepare` finds out what there is to
//! do and changes nothing, so that a run that cannot start says so with its
//! reason; what it gives is carried out once. To add a method, implement
//! [`RunMethod`] and give it to [`super::Methods`].

use std::sync::Arc;

use async_trait::async_trait;
use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeRunId, ReleaseNumber};
use bunraku_wire::api::{Cause, RunEnding, RunFailure, RunMode, RunSubject};
use tokio_util::sync::CancellationToken;

use crate::reports::Recorder;

/// A run as a method gets it.
#[derive(Clone, Debug)]
pub struct RunOrder {
    pub id: NodeRunId,
    /// As the request, the settings and the windows say. A method may be
    /// stricter, never looser.
    pub mode: RunMode,
    pub subject: RunSubject,
    pub tags: Vec<String>,
    /// To be handed on to whatever the run sets off.
    pub causes: Vec<Cause>,
    /// How many there are beyond these.
    pub more_causes: u64,
}

impl RunOrder {
    /// The environment that the request names for this run alone.
    pub(super) fn environment(&self) -> Option<&EnvironmentName> {
        match &self.subject {
            RunSubject::Configured { environment } => environment.as_ref(),
            RunSubject::Released | RunSubject::Catalog { .. } => None,
        }
    }
}

/// What a report says of a run at its start.
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

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEnd {
    pub ending: RunEnding,
    pub message: Option<String>,
    /// What went wrong, where the ending alone does not tell.
    pub failure: Option<RunFailure>,
}

/// Why a run did not start.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct NotStarted {
    pub message: String,
    /// [`RunEnding::NotStarted`], unless there is a better word for it.
    pub ending: RunEnding,
    pub failure: Option<RunFailure>,
}

impl NotStarted {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ending: RunEnding::NotStarted,
            failure: None,
        }
    }

    /// With everything underneath the error.
    pub fn because(what: &str, error: &dyn std::error::Error) -> Self {
        let mut message = format!("{what}: {error}");
        let mut source = error.source();
        while let Some(error) = source {
            message.push_str(&format!(": {error}"));
            source = error.source();
        }
        Self::new(message)
    }
}

/// A way to carry runs out.
#[async_trait]
pub trait RunMethod: Send + Sync {
    /// As reports name it.
    fn name(&self) -> &'static str;

    /// May a request name the environment of its run?
    fn knows_environments(&self) -> bool {
        false
    }

    async fn prepare(&self, order: &RunOrder) -> Result<Box<dyn PreparedRun>, NotStarted>;
}

/// A run that can start.
#[async_trait]
pub trait PreparedRun: Send {
    fn describe(&self) -> RunDescription;

    /// Carries it out. Ends early, but not before everything it started has
    /// ended, once `stop` is cancelled.
    async fn carry_out(self: Box<Self>, recorder: Arc<Recorder>, stop: CancellationToken)
    -> RunEnd;
}
