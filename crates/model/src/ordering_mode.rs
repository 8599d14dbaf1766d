//! The order of resources where requisites leave it open.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the engine orders the resources of a catalog.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderingMode {
    /// Everything at once, respecting only requisites.
    JustDoIt,
    /// One after the other in file order, respecting requisites.
    Ansible,
    /// In parallel with inferred order, the longest path first.
    #[default]
    Genius,
}

/// A word that is not an ordering mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an ordering mode (genius, ansible or justdoit)")]
pub struct InvalidOrderingMode(String);

impl OrderingMode {
    pub const ALL: [Self; 3] = [Self::JustDoIt, Self::Ansible, Self::Genius];

    /// The name in settings, flags and catalogs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JustDoIt => "justdoit",
            Self::Ansible => "ansible",
            Self::Genius => "genius",
        }
    }
}

impl fmt::Display for OrderingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for OrderingMode {
    type Err = InvalidOrderingMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut modes = Self::ALL.into_iter();
        let named = modes.find(|mode| mode.as_str() == text);
        named.ok_or_else(|| InvalidOrderingMode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_has_one_name_in_text_and_in_json() {
        for mode in OrderingMode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(mode));
            assert_eq!(serde_json::json!(mode), mode.as_str());
        }
        assert!("Genius".parse::<OrderingMode>().is_err());
    }
}
