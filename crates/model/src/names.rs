//! Names that people choose, checked once on input.
//!
//! A name becomes part of store keys, file names and certificates. So it has no slash, no control
//! character, no upper case (Puppet's rule for certificate names) and is never `.` or `..`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const LONGEST: usize = 253;

/// The reason why a name is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a valid name for {what}: {why}")]
pub struct InvalidName {
    what: &'static str,
    name: String,
    why: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $allowed:expr, $rule:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Checks the text and turns it into a name.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
                let name = text.into();
                let allowed: fn(u8) -> bool = $allowed;
                let why = if name.is_empty() {
                    "it is empty"
                } else if name.len() > LONGEST {
                    "it is longer than 253 characters"
                } else if !name.bytes().all(allowed) {
                    $rule
                } else if !name.as_bytes()[0].is_ascii_alphanumeric() && name.as_bytes()[0] != b'_' {
                    "it must start with a letter, a digit or `_`"
                } else {
                    return Ok(Self(name));
                };
                Err(InvalidName { what: $what, name, why })
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

name! {
    /// A managed machine, by the name in its certificate.
    NodeName, "a node",
    |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_'),
    "only a-z, 0-9, `.`, `-` and `_` are allowed"
}

name! {
    /// The name that people use for code at one revision.
    EnvironmentName, "an environment",
    |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_',
    "only a-z, 0-9 and `_` are allowed"
}

name! {
    /// A control repository whose branches are environments.
    RepositoryName, "a repository",
    |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_'),
    "only a-z, 0-9, `-` and `_` are allowed"
}

name! {
    /// The name of a task that is done once per fleet.
    AppName, "a once task",
    |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'),
    "only A-Z, a-z, 0-9, `.`, `-` and `_` are allowed"
}

name! {
    /// A lock that nodes and people share.
    LockName, "a lock",
    |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':'),
    "only A-Z, a-z, 0-9, `.`, `-`, `_` and `:` are allowed"
}

name! {
    /// A trigger. Spaces are allowed, because resource titles have them.
    TriggerName, "a trigger",
    |byte| byte.is_ascii_alphanumeric() || b".-_: /()".contains(&byte),
    "only A-Z, a-z, 0-9, `.`, `-`, `_`, `:`, `/`, `(`, `)` and spaces are allowed"
}

/// The environment of a node without an assigned one.
pub fn default_environment() -> EnvironmentName {
    EnvironmentName("production".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_taken() {
        for name in ["dev1.devco.net", "web-01", "a", "_x", "10.0.0.1"] {
            assert_eq!(NodeName::new(name).expect(name).as_str(), name);
        }
    }

    #[test]
    fn names_that_could_leave_their_place_are_refused() {
        let long = "a".repeat(254);
        for name in ["", ".", "..", "a/b", "A", "a b", "a\0", "-a", "é", &long] {
            assert!(NodeName::new(name).is_err(), "{name:?}");
        }
        assert_eq!(
            NodeName::new("Web/1").expect_err("upper case").to_string(),
            "`Web/1` is not a valid name for a node: only a-z, 0-9, `.`, `-` and `_` are allowed"
        );
    }
}
