//! The reason for a missing catalog: a fault in the code, or something around it.

use bunraku_control::ServiceError;
use bunraku_wire::api::CompileProblem;

/// The reason for a missing catalog.
#[derive(Debug, thiserror::Error)]
pub enum CompileFailure {
    /// The code is at fault: the same code and facts fail again.
    #[error("{}", join_problems(.0))]
    Problems(Vec<CompileProblem>),
    /// The code killed the process that compiled it. The text says how.
    #[error("{0}")]
    WorkerDied(String),
    /// Something around the code failed: a retry may help.
    #[error("the compile did not run")]
    Temporary(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl CompileFailure {
    pub fn problem(problem: CompileProblem) -> Self {
        Self::Problems(vec![problem])
    }

    pub fn message(message: impl Into<String>) -> Self {
        Self::problem(CompileProblem {
            message: message.into(),
            ..CompileProblem::default()
        })
    }

    /// Converts the failure for a caller who waits for the result. `what` describes what failed
    /// if the code is not at fault.
    pub(crate) fn into_service_error(self, what: &str) -> ServiceError {
        match self {
            Self::Problems(problems) => ServiceError::invalid(join_problems(&problems)),
            Self::WorkerDied(message) => ServiceError::invalid(message),
            Self::Temporary(source) => ServiceError::Internal {
                what: what.to_owned(),
                source,
            },
        }
    }

    pub fn temporary(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Temporary(error.into())
    }
}

fn join_problems(problems: &[CompileProblem]) -> String {
    let texts: Vec<&str> = problems
        .iter()
        .map(|problem| problem.message.as_str())
        .collect();
    texts.join("; ")
}
