//! Why there is no catalog: the code is at fault, or something around it.

use bunraku_wire::api::CompileProblem;

/// Why there is no catalog.
#[derive(Debug, thiserror::Error)]
pub enum CompileFailure {
    /// The code is at fault: the same code and facts fail again.
    #[error("{}", shown(.0))]
    Problems(Vec<CompileProblem>),
    /// Something around it: worth trying again.
    #[error("compiling could not be carried out")]
    Temporary(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl CompileFailure {
    pub fn problem(problem: CompileProblem) -> Self {
        Self::Problems(vec![problem])
    }

    pub fn said(message: impl Into<String>) -> Self {
        Self::problem(CompileProblem {
            message: message.into(),
            ..CompileProblem::default()
        })
    }

    pub fn temporary(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Temporary(error.into())
    }
}

fn shown(problems: &[CompileProblem]) -> String {
    let texts: Vec<&str> = problems
        .iter()
        .map(|problem| problem.message.as_str())
        .collect();
    texts.join("; ")
}
