//! Who asks, about what, and which rules may say yes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::rules::AccessRule;
use super::scope::AccessScope;
use super::subject::GroupName;
use super::verb::AccessVerb;
use crate::names::{EnvironmentName, InvalidName, NodeName};

const EVERYTHING: &str = "everything";
const ENVIRONMENT_PREFIX: &str = "environment:";
const NODE_PREFIX: &str = "node:";

/// The holder of an operator's certificate.
#[derive(Clone, Copy, Debug)]
pub struct AccessHolder<'a> {
    /// `None` in questions about a group alone.
    pub name: Option<&'a NodeName>,
    pub groups: &'a BTreeSet<GroupName>,
}

/// What an action is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AccessTarget {
    /// Something that belongs to no environment: servers, certificates, rules.
    Everything,
    Environment(EnvironmentName),
    Node(NodeName),
}

/// A text that is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    #[error(
        "`{0}` is not something to check (use `everything`, `environment:NAME` or `node:NAME`)"
    )]
    Word(String),
    #[error(transparent)]
    Name(#[from] InvalidName),
}

impl fmt::Display for AccessTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.pad(EVERYTHING),
            Self::Environment(name) => f.pad(&format!("{ENVIRONMENT_PREFIX}{name}")),
            Self::Node(name) => f.pad(&format!("{NODE_PREFIX}{name}")),
        }
    }
}

impl FromStr for AccessTarget {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == EVERYTHING {
            return Ok(Self::Everything);
        }
        if let Some(name) = text.strip_prefix(ENVIRONMENT_PREFIX) {
            return Ok(Self::Environment(EnvironmentName::new(name)?));
        }
        match text.strip_prefix(NODE_PREFIX) {
            Some(name) => Ok(Self::Node(NodeName::new(name)?)),
            None => Err(InvalidTarget::Word(text.to_owned())),
        }
    }
}

impl TryFrom<String> for AccessTarget {
    type Error = InvalidTarget;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AccessTarget> for String {
    fn from(target: AccessTarget) -> Self {
        target.to_string()
    }
}

/// The fleet, as far as scopes depend on it.
pub trait ScopeWorld {
    /// The environment of a node. `None` if there is no such node.
    fn environment_of(&self, node: &NodeName) -> Option<EnvironmentName>;

    /// Returns whether a query finds a node. A query that cannot be read finds none.
    fn finds(&self, query: &str, node: &NodeName) -> bool;
}

impl AccessScope {
    /// Returns whether a rule with this scope is about the target.
    pub fn covers(&self, target: &AccessTarget, world: &(impl ScopeWorld + ?Sized)) -> bool {
        match (self, target) {
            (Self::Everything, _) => true,
            (Self::Environment(own), AccessTarget::Environment(asked)) => own == asked,
            (Self::Environment(own), AccessTarget::Node(node)) => {
                world.environment_of(node).as_ref() == Some(own)
            }
            (Self::Nodes(query), AccessTarget::Node(node)) => world.finds(query, node),
            // Access to some nodes is not access to what they share.
            (Self::Nodes(_), AccessTarget::Environment(_)) | (_, AccessTarget::Everything) => false,
        }
    }
}

impl AccessRule {
    /// Returns whether it allows a holder to do this to something.
    pub fn allows(&self, holder: &AccessHolder<'_>, verb: AccessVerb) -> bool {
        self.grants.allows(verb) && self.subject.covers(holder)
    }
}
