//! The version of a module: numbers separated by dots, so that their order is unambiguous.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `1.4.2`: two to four numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version(Vec<u32>);

/// Text that is not a version.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a version of two to four numbers, such as `1.4.2`")]
pub struct InvalidVersion(String);

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |part: &str| {
            // Each number has one spelling: `01` and `+1` are invalid.
            let plain = part == "0" || !part.starts_with(['0', '+']);
            part.parse().ok().filter(|_: &u32| plain)
        };
        let numbers: Option<Vec<u32>> = text.split('.').map(number).collect();
        match numbers {
            // `1.0` and `1.0.0` are equal to people but differ as map keys.
            Some(numbers) if (2..=4).contains(&numbers.len()) => Ok(Self(numbers)),
            _ => Err(InvalidVersion(text.chars().take(60).collect())),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, number) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(f, "{dot}{number}")?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Version {
    type Error = InvalidVersion;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}
