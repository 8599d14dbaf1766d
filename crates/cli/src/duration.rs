//! Spans of time as people write them: `30s`, `15m`, `1h 30m`, `365d`.

use std::time::Duration;

use jiff::{SpanRelativeTo, Unit};
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
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || {
            format!(
                "`{text}` is not a span of time; write for example `30s`, `15m`, `1h 30m` or `7d`"
            )
        };
        let span: jiff::Span = text.parse().map_err(|_| refuse())?;
        let seconds = span
            .total((Unit::Second, SpanRelativeTo::days_are_24_hours()))
            .map_err(|_| refuse())?;
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| refuse())
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_spans_in_many_ways() {
        for (text, seconds) in [
            ("30s", 30),
            ("15m", 900),
            ("1h 30m", 5_400),
            ("7d", 604_800),
            ("2 weeks", 1_209_600),
        ] {
            assert_eq!(
                text.parse(),
                Ok(HumanDuration::from_secs(seconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_are_refused_with_examples() {
        for text in ["", "soon", "-5m", "5", "1 month"] {
            let error = text.parse::<HumanDuration>().expect_err(text);
            assert!(error.contains("15m"), "{error}");
        }
    }
}
