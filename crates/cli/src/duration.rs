//! Spans of time in flags and in the configuration file.

use std::time::Duration;

use bunraku_model::{InvalidSpan, parse_span};
use serde::{Deserialize, Deserializer};

/// A span in a flag or in the configuration file. A day has 24 hours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HumanDuration(pub(crate) Duration);

impl HumanDuration {
    pub(crate) const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(crate) const fn from_millis(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }

    pub(crate) fn signed(self) -> jiff::SignedDuration {
        jiff::SignedDuration::try_from(self.0).unwrap_or(jiff::SignedDuration::MAX)
    }
}

impl std::str::FromStr for HumanDuration {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_span(text).map(Self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
