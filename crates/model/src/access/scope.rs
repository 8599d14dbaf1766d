//! What a rule is limited to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::{EnvironmentName, InvalidName};

const EVERYTHING: &str = "everything";
const ENVIRONMENT_PREFIX: &str = "environment:";
const NODES_PREFIX: &str = "nodes:";

/// The part of the fleet that a rule is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AccessScope {
    Everything,
    /// An environment, and the nodes that are in it now.
    Environment(EnvironmentName),
    /// The nodes that this query finds now. The text is kept even if a later version cannot read
    /// it: such a rule allows nothing.
    Nodes(String),
}

/// A text that is not a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScope {
    #[error("`{0}` is not a scope (use `everything`, `environment:NAME` or `nodes:QUERY`)")]
    Word(String),
    #[error(transparent)]
    Environment(#[from] InvalidName),
}

impl fmt::Display for AccessScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.pad(EVERYTHING),
            Self::Environment(name) => f.pad(&format!("{ENVIRONMENT_PREFIX}{name}")),
            Self::Nodes(query) => f.pad(&format!("{NODES_PREFIX}{query}")),
        }
    }
}

impl FromStr for AccessScope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == EVERYTHING {
            return Ok(Self::Everything);
        }
        if let Some(name) = text.strip_prefix(ENVIRONMENT_PREFIX) {
            return Ok(Self::Environment(EnvironmentName::new(name)?));
        }
        match text.strip_prefix(NODES_PREFIX).map(str::trim) {
            Some(query) if !query.is_empty() => Ok(Self::Nodes(query.to_owned())),
            _ => Err(InvalidScope::Word(text.to_owned())),
        }
    }
}

impl TryFrom<String> for AccessScope {
    type Error = InvalidScope;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AccessScope> for String {
    fn from(scope: AccessScope) -> Self {
        scope.to_string()
    }
}
