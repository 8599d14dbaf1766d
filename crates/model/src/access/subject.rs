//! Whom a rule is about.
//!
//! A name and a group with the same spelling are different subjects: groups always have the
//! prefix `group:`, and names cannot contain a colon.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::decision::AccessHolder;
use crate::names::{InvalidName, NodeName};

/// The most groups in one certificate.
pub const MOST_GROUPS: usize = 32;
/// The longest name of a group.
const LONGEST_GROUP: usize = 64;
const GROUP_PREFIX: &str = "group:";
const EVERYONE: &str = "@everyone";
const UNGROUPED: &str = "@ungrouped";

/// A group of operators, carried in their certificates.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupName(String);

impl GroupName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for GroupName {
    type Err = InvalidSubject;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_')
        };
        let is_valid = text.len() <= LONGEST_GROUP
            && text.bytes().all(allowed)
            && text
                .as_bytes()
                .first()
                .is_some_and(u8::is_ascii_alphanumeric);
        if is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidSubject::Group(text.to_owned()))
        }
    }
}

impl TryFrom<String> for GroupName {
    type Error = InvalidSubject;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<GroupName> for String {
    fn from(group: GroupName) -> Self {
        group.0
    }
}

/// The holders of operators' certificates that a rule is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Subject {
    /// The name in a certificate.
    Name(NodeName),
    /// All certificates that carry the group.
    Group(GroupName),
    /// All operators.
    Everyone,
    /// Operators whose certificates carry no group.
    Ungrouped,
}

/// A text that is not a subject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSubject {
    #[error(
        "`{0}` is not a valid group name: use up to 64 of a-z, 0-9, `.`, `-` and `_`, and begin with a letter or digit"
    )]
    Group(String),
    #[error(
        "`{0}` is not a subject (use a certificate's name, `group:NAME`, `@everyone` or `@ungrouped`)"
    )]
    Word(String),
    #[error(transparent)]
    Name(#[from] InvalidName),
}

impl Subject {
    /// Returns whether a rule for this subject is about the holder of a certificate.
    pub fn covers(&self, holder: &AccessHolder<'_>) -> bool {
        match self {
            Self::Name(name) => holder.name == Some(name),
            Self::Group(group) => holder.groups.contains(group),
            Self::Everyone => true,
            Self::Ungrouped => holder.groups.is_empty(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Group(group) => f.pad(&format!("{GROUP_PREFIX}{group}")),
            Self::Everyone => f.pad(EVERYONE),
            Self::Ungrouped => f.pad(UNGROUPED),
        }
    }
}

impl FromStr for Subject {
    type Err = InvalidSubject;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            EVERYONE => Ok(Self::Everyone),
            UNGROUPED => Ok(Self::Ungrouped),
            _ if text.starts_with('@') => Err(InvalidSubject::Word(text.to_owned())),
            _ => match text.strip_prefix(GROUP_PREFIX) {
                Some(group) => group.parse().map(Self::Group),
                None => Ok(Self::Name(NodeName::new(text)?)),
            },
        }
    }
}

impl TryFrom<String> for Subject {
    type Error = InvalidSubject;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Subject> for String {
    fn from(subject: Subject) -> Self {
        subject.to_string()
    }
}
