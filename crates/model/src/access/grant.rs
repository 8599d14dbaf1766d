//! What a rule grants: a role, or some verbs.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::verb::AccessVerb;

/// A built-in bundle of verbs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccessRole {
    Viewer,
    Operator,
    Releaser,
    Administrator,
}

impl AccessRole {
    pub const ALL: [Self; 4] = [
        Self::Viewer,
        Self::Operator,
        Self::Releaser,
        Self::Administrator,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Releaser => "releaser",
            Self::Administrator => "administrator",
        }
    }

    /// The verbs of the role.
    pub fn verbs(self) -> &'static [AccessVerb] {
        use AccessVerb::{Deploy, NoopRun, Release, Run, View};
        match self {
            Self::Viewer => &[View],
            Self::Operator => &[View, NoopRun, Run],
            Self::Releaser => &[View, NoopRun, Run, Deploy, Release],
            Self::Administrator => &AccessVerb::ALL,
        }
    }
}

impl fmt::Display for AccessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a rule grants. Written as the name of a role, or as verbs with commas between them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AccessGrant {
    Role(AccessRole),
    /// Never empty.
    Verbs(BTreeSet<AccessVerb>),
}

/// A text that is neither a role nor a list of verbs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{word}` is neither a role (viewer, operator, releaser, administrator) nor a verb (view, view-secrets, noop-run, run, deploy, release, approve, sign, administer)"
)]
pub struct InvalidGrant {
    word: String,
}

impl AccessGrant {
    /// Returns whether it allows this verb.
    pub fn allows(&self, verb: AccessVerb) -> bool {
        match self {
            Self::Role(role) => role.verbs().iter().any(|granted| granted.includes(verb)),
            Self::Verbs(verbs) => verbs.iter().any(|granted| granted.includes(verb)),
        }
    }
}

impl fmt::Display for AccessGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(role) => f.pad(role.as_str()),
            Self::Verbs(verbs) => {
                let words: Vec<&str> = verbs.iter().map(|verb| verb.as_str()).collect();
                f.pad(&words.join(","))
            }
        }
    }
}

impl FromStr for AccessGrant {
    type Err = InvalidGrant;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let role = AccessRole::ALL
            .into_iter()
            .find(|role| role.as_str() == text);
        if let Some(role) = role {
            return Ok(Self::Role(role));
        }
        let verbs = text.split(',').map(str::trim).map(|word| {
            word.parse().map_err(|_| InvalidGrant {
                word: word.to_owned(),
            })
        });
        Ok(Self::Verbs(verbs.collect::<Result<_, _>>()?))
    }
}

impl TryFrom<String> for AccessGrant {
    type Error = InvalidGrant;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AccessGrant> for String {
    fn from(grant: AccessGrant) -> Self {
        grant.to_string()
    }
}
