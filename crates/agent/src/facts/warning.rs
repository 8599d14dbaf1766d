//! What went wrong while collecting, said so that a person can act on it.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// One thing that could not be collected. The other facts are not affected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FactWarning {
    pub place: WarningPlace,
    /// What is wrong, in lower case.
    pub problem: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// Where the trouble is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WarningPlace {
    Group(&'static str),
    File { path: PathBuf, line: Option<u64> },
}

impl FactWarning {
    pub(super) fn of_group(group: &'static str, error: &dyn Error) -> Self {
        let mut problem = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            problem = format!("{problem}: {error}");
            cause = error.source();
        }
        Self {
            place: WarningPlace::Group(group),
            problem,
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
