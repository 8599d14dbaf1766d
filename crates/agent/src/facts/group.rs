//! A fact group: a function from a machine to top-level facts.

use std::io;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::machine::Machine;
use super::warning::FactWarning;

/// Facts by top-level name.
pub(super) type Facts = Map<String, Value>;

/// Collects one group. Minor problems become warnings; an error omits the whole group.
pub(super) type Group = fn(&Machine, &mut Vec<FactWarning>) -> Result<Facts, GroupError>;

/// The reason why a group could not be collected.
#[derive(Debug, thiserror::Error)]
pub(super) enum GroupError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} does not contain {what}")]
    Missing {
        path: &'static str,
        what: &'static str,
    },
    #[error("cannot ask the kernel for {what}")]
    Kernel {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Returns a group that consists of one fact.
pub(super) fn single(name: &str, value: impl Into<Value>) -> Facts {
    Map::from_iter([(name.to_owned(), value.into())])
}

/// Adds a member unless it has no value: Facter omits such facts.
pub(super) fn put(members: &mut Facts, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        members.insert(name.to_owned(), value.into());
    }
}
