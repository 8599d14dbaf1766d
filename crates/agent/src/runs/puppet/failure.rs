//! The ways in which a run by Puppet can fail.

use bunraku_wire::api::{RunEnding, RunFailure};

use super::super::method::{RunEnd, RunStartError};

/// The reason why a run did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PuppetFailure {
    #[error("Puppet is not installed on this node: {looked}")]
    NoPuppet { looked: String },
    #[error("Puppet did not start: {why}")]
    DidNotStart { why: String },
    #[error("Puppet is disabled on this node{}", because(.reason))]
    Disabled { reason: Option<String> },
    #[error("the Puppet run of process {pid} did not end in time")]
    Locked { pid: i32 },
    #[error("it was stopped")]
    Stopped,
    #[error("{0}")]
    Failed(String),
    #[error("Puppet exited with {status}{}", because(.why))]
    ExitCode { status: String, why: Option<String> },
    #[error("Puppet exited with {status} without a report of this run")]
    NoReport { status: String },
    #[error("Puppet's report of this run is not usable: {why}")]
    InvalidReport { why: String },
    #[error("Puppet did not apply the released catalog: {why}")]
    OtherCatalog { why: String },
}

fn because(reason: &Option<String>) -> String {
    match reason {
        Some(reason) => format!(": {reason}"),
        None => String::new(),
    }
}

impl PuppetFailure {
    pub(super) fn ending(&self) -> RunEnding {
        match self {
            Self::NoPuppet { .. } | Self::DidNotStart { .. } => RunEnding::NotStarted,
            Self::Disabled { .. } => RunEnding::Disabled,
            _ => RunEnding::Failed,
        }
    }

    fn kind(&self) -> Option<RunFailure> {
        match self {
            Self::NoPuppet { .. } => Some(RunFailure::NoProgram),
            Self::DidNotStart { .. } => Some(RunFailure::DidNotStart),
            Self::Locked { .. } => Some(RunFailure::Locked),
            Self::ExitCode { .. } => Some(RunFailure::ExitCode),
            Self::NoReport { .. } => Some(RunFailure::NoReport),
            Self::InvalidReport { .. } => Some(RunFailure::InvalidReport),
            Self::OtherCatalog { .. } => Some(RunFailure::OtherCatalog),
            // The ending explains the failure sufficiently.
            Self::Disabled { .. } | Self::Stopped | Self::Failed(_) => None,
        }
    }
}

impl From<PuppetFailure> for RunEnd {
    fn from(failure: PuppetFailure) -> Self {
        Self {
            ending: failure.ending(),
            message: Some(failure.to_string()),
            failure: failure.kind(),
        }
    }
}

impl From<PuppetFailure> for RunStartError {
    fn from(failure: PuppetFailure) -> Self {
        Self {
            message: failure.to_string(),
            ending: failure.ending(),
            failure: failure.kind(),
        }
    }
}
