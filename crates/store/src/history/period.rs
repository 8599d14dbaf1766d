//! Periods of time: each has tables of its own, so deleting old ones is cheap.

use jiff::Timestamp;

use super::HistoryPart;

const MICROS_PER_DAY: i64 = 24 * 3_600 * 1_000_000;
/// Days per period of records. Records are small and kept for long.
const RECORD_DAYS: i64 = 7;
/// Days per period of events. Events are most of the data and kept for a short time.
const EVENT_DAYS: i64 = 1;

/// A period, by the number of its first day.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Period {
    pub(super) part: HistoryPart,
    pub(super) day: i64,
}

impl Period {
    pub(super) fn of(part: HistoryPart, at: Timestamp) -> Self {
        let days = length(part);
        let day = at.as_microsecond().div_euclid(MICROS_PER_DAY);
        Self {
            part,
            day: day.div_euclid(days) * days,
        }
    }

    pub(super) fn next(self) -> Self {
        Self {
            day: self.day + length(self.part),
            ..self
        }
    }

    /// The first microsecond.
    pub(super) fn start(self) -> i64 {
        self.day.saturating_mul(MICROS_PER_DAY)
    }

    /// The first microsecond after it.
    pub(super) fn end(self) -> i64 {
        self.next().start()
    }
}

fn length(part: HistoryPart) -> i64 {
    match part {
        HistoryPart::Events => EVENT_DAYS,
        HistoryPart::Records => RECORD_DAYS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(at: &str, part: HistoryPart) -> (i64, i64) {
        let period = Period::of(part, at.parse().expect("a time"));
        (period.start(), period.end())
    }

    #[test]
    fn a_period_contains_its_time_even_before_1970() {
        for at in [
            "2026-03-01T00:00:00Z",
            "1969-12-31T23:59:59.999999Z",
            "0001-01-01T00:00:00Z",
        ] {
            for part in [HistoryPart::Events, HistoryPart::Records] {
                let (start, end) = day(at, part);
                let at: Timestamp = at.parse().expect("a time");
                assert!((start..end).contains(&at.as_microsecond()), "{at}");
            }
        }
    }

    #[test]
    fn neighbouring_times_share_a_period_unless_its_end_is_between_them() {
        let events = |at| day(at, HistoryPart::Events);
        assert_eq!(
            events("2026-03-01T00:00:00Z"),
            events("2026-03-01T23:59:59Z")
        );
        assert_ne!(
            events("2026-03-01T23:59:59Z"),
            events("2026-03-02T00:00:00Z")
        );
    }
}
