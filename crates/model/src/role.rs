//! The role that a certificate gives its holder.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The role in a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A managed machine. Reaches only its own data.
    Node,
    /// A person, or a program that acts for one: runs, releases, signs.
    Operator,
    /// A member of the cluster.
    Server,
}

/// A word that is not a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role (node, operator or server)")]
pub struct InvalidRole(String);

impl Role {
    /// The name in certificates, flags and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Operator => "operator",
            Self::Server => "server",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = InvalidRole;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        [Self::Node, Self::Operator, Self::Server]
            .into_iter()
            .find(|role| role.as_str() == word)
            .ok_or_else(|| InvalidRole(word.to_owned()))
    }
}
