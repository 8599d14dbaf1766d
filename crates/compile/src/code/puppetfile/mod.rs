//! Puppetfiles: the modules that a control repository names.
//!
//! The usual declarations of r10k and librarian-puppet are read without running
//! Ruby: `forge`, `moduledir` and `mod` with literal values. Anything else is an
//! error with its place, so that no module is silently missing.
//!
//! Absent here: fetching the modules (`code::sources`).

mod lexer;
mod parser;

use std::path::PathBuf;

use bunraku_wire::api::CompileProblem;

/// The name of the file at the root of a repository.
pub(crate) const FILE: &str = "Puppetfile";

/// Maximum size of a Puppetfile in bytes.
pub(crate) const LARGEST: u64 = 1 << 20;

/// A module that a Puppetfile names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PuppetfileModule {
    /// The name of its directory.
    pub(crate) name: String,
    /// The directory below the environment's root.
    pub(crate) path: PathBuf,
    pub(crate) source: ModuleOrigin,
    /// Whether its `spec` directory is left out.
    pub(crate) excludes_spec: bool,
    pub(crate) line: u64,
}

/// Where a module comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ModuleOrigin {
    Forge {
        owner: String,
        name: String,
        /// The newest release if absent.
        version: Option<String>,
    },
    Git {
        url: String,
        reference: GitReference,
        /// Used if the reference does not exist.
        fallbacks: Vec<String>,
    },
    /// Part of the control repository itself.
    Local,
}

/// The commit of a module in its repository.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum GitReference {
    DefaultBranch,
    /// The branch of the same name as the environment's.
    ControlBranch,
    /// A branch, tag or commit.
    Named(String),
}

/// The place and the reason of an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PuppetfileError {
    pub(crate) line: u64,
    pub(crate) column: u64,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl PuppetfileError {
    fn new(line: u64, column: u64, message: impl Into<String>) -> Self {
        Self {
            line,
            column,
            message: message.into(),
            hint: None,
        }
    }

    /// The error in the API's terms.
    pub(crate) fn into_problem(self) -> CompileProblem {
        CompileProblem {
            message: self.message,
            file: Some(FILE.to_owned()),
            line: Some(self.line),
            column: Some(self.column),
            hint: self.hint,
        }
    }

    fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Reads a Puppetfile.
pub(crate) fn parse(text: &str) -> Result<Vec<PuppetfileModule>, PuppetfileError> {
    parser::parse(text)
}

#[cfg(test)]
mod tests;
