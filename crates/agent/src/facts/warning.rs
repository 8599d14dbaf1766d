//! Problems during fact collection, worded so that a person can act on them.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use bunraku_model::error_chain;

/// A fact source that could not be collected. The other facts are not affected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FactWarning {
    pub place: WarningPlace,
    /// The problem, in lower case.
    pub problem: String,
    /// Advice on how to fix it.
    pub advice: Option<String>,
}

/// The location of the problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WarningPlace {
    Group(&'static str),
    File { path: PathBuf, line: Option<u64> },
}

impl FactWarning {
    pub(super) fn of_group(group: &'static str, error: &dyn Error) -> Self {
        Self {
            place: WarningPlace::Group(group),
            problem: error_chain(error),
            advice: None,
        }
    }

    pub(super) fn in_group(group: &'static str, problem: impl Into<String>) -> Self {
        Self {
            place: WarningPlace::Group(group),
            problem: problem.into(),
            advice: None,
        }
    }
}

impl fmt::Display for FactWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            WarningPlace::Group(group) => write!(f, "fact group `{group}`: ")?,
            WarningPlace::File {
                path,
                line: Some(line),
            } => write!(f, "{}:{line}: ", path.display())?,
            WarningPlace::File { path, line: None } => write!(f, "{}: ", path.display())?,
        }
        f.write_str(&self.problem)?;
        match &self.advice {
            Some(advice) => write!(f, " ({advice})"),
            None => Ok(()),
        }
    }
}
