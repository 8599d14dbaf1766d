//! Spans of time in the form that people write: `30s`, `15m`, `1h 30m`, `365d`.

use std::time::Duration;

use jiff::{SpanRelativeTo, Unit};

/// A text that is not a span of time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a duration; write for example `30s`, `15m`, `1h 30m` or `7d`")]
pub struct InvalidSpan(String);

/// Parses a span. A day has 24 hours. Months and years have no fixed length and are rejected.
pub fn parse_span(text: &str) -> Result<Duration, InvalidSpan> {
    let refuse = || InvalidSpan(text.to_owned());
    let span: jiff::Span = text.parse().map_err(|_| refuse())?;
    let seconds = span
        .total((Unit::Second, SpanRelativeTo::days_are_24_hours()))
        .map_err(|_| refuse())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| refuse())
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
            assert_eq!(parse_span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_examples() {
        for text in ["", "soon", "-5m", "5", "1 month"] {
            let error = parse_span(text).expect_err(text).to_string();
            assert!(error.contains("15m"), "{error}");
        }
    }
}
