//! What somebody may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A kind of action that a rule allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessVerb {
    /// Read nodes, facts, catalogs, reports, runs and releases.
    View,
    /// Read sensitive values and the content of files. Includes `view`.
    ViewSecrets,
    /// Start runs that change nothing.
    NoopRun,
    /// Start, stop and cancel runs, fire triggers, disable nodes. Includes `noop-run`.
    Run,
    /// Deploy and compile code.
    Deploy,
    /// Create releases, roll back, hold and resume them.
    Release,
    /// Approve what somebody else requested.
    Approve,
    /// Let nodes join, and revoke their certificates.
    Sign,
    /// Change settings, servers, operators and access rules.
    Administer,
}

/// A word that is not a verb.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not a verb (use {})", AccessVerb::words())]
pub struct InvalidVerb {
    word: String,
}

impl AccessVerb {
    /// All verbs, from the least to the most.
    pub const ALL: [Self; 9] = [
        Self::View,
        Self::ViewSecrets,
        Self::NoopRun,
        Self::Run,
        Self::Deploy,
        Self::Release,
        Self::Approve,
        Self::Sign,
        Self::Administer,
    ];

    /// The word in rules, flags and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::ViewSecrets => "view-secrets",
            Self::NoopRun => "noop-run",
            Self::Run => "run",
            Self::Deploy => "deploy",
            Self::Release => "release",
            Self::Approve => "approve",
            Self::Sign => "sign",
            Self::Administer => "administer",
        }
    }

    /// Returns whether somebody who may do this may also do `other`.
    pub fn includes(self, other: Self) -> bool {
        self == other
            || matches!(
                (self, other),
                (Self::ViewSecrets, Self::View) | (Self::Run, Self::NoopRun)
            )
    }

    fn words() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

impl fmt::Display for AccessVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AccessVerb {
    type Err = InvalidVerb;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|verb| verb.as_str() == word)
            .ok_or_else(|| InvalidVerb {
                word: word.to_owned(),
            })
    }
}
