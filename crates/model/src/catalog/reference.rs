//! References of the form `Type[title]` from one resource to another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A reference to a resource by its type and title.
///
/// The type is kept as Puppet writes it (`File`, `Apache::Vhost`), so two references are equal
/// exactly when they name the same resource.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResourceReference {
    type_name: String,
    title: String,
}

/// Text that is not of the form `Type[title]`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a reference of the form `Type[title]`")]
pub struct InvalidReference(String);

impl ResourceReference {
    pub fn new(type_name: &str, title: impl Into<String>) -> Self {
        Self {
            type_name: capitalised(type_name),
            title: title.into(),
        }
    }

    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    pub fn title(&self) -> &str {
        &self.title
    }
}

/// Capitalises a type name: `apache::vhost` and `Apache::vhost` both become `Apache::Vhost`.
fn capitalised(type_name: &str) -> String {
    let mut out = String::with_capacity(type_name.len());
    let mut first = true;
    for character in type_name.chars() {
        if first {
            out.extend(character.to_uppercase());
        } else {
            out.push(character);
        }
        first = character == ':';
    }
    out
}

impl fmt::Display for ResourceReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.type_name, self.title)
    }
}

impl FromStr for ResourceReference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || InvalidReference(text.to_owned());
        let inside = text.strip_suffix(']').ok_or_else(refuse)?;
        let (type_name, title) = inside.split_once('[').ok_or_else(refuse)?;
        if type_name.is_empty() || !type_name.starts_with(|c: char| c.is_alphabetic()) {
            return Err(refuse());
        }
        Ok(Self::new(type_name, title))
    }
}

impl Serialize for ResourceReference {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ResourceReference {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
