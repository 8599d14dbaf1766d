//! Deployment windows: the times at which runs may change the machine.
//!
//! `mon-fri 22:00-04:00 Europe/Berlin` consists of the days on which a window begins, its hours,
//! and their time zone (the machine's own if none is given). A window may extend past midnight; it
//! belongs to the day on which it begins. Pure: the time is an argument.

use std::str::FromStr;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, AmbiguousTimestamp, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// A list of windows. An empty list is always open.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Windows(pub Vec<Window>);

/// One window.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    days: Vec<Weekday>,
    from: Time,
    /// The end, exclusive. Both are midnight for a whole day.
    to: Time,
    zone: TimeZone,
}

/// The error for text that is not a window.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{text}` is not a window: {why}; write for example `mon-fri 22:00-04:00 Europe/Berlin` or `sat,sun`"
)]
pub struct InvalidWindow {
    text: String,
    why: &'static str,
}

impl Windows {
    pub fn are_open(&self, now: Timestamp) -> bool {
        self.0.is_empty() || self.0.iter().any(|window| window.is_open(now))
    }
}

impl Window {
    pub fn is_open(&self, now: Timestamp) -> bool {
        let today = now.to_zoned(self.zone.clone()).date();
        // After midnight, the window may be yesterday's.
        [today.yesterday().ok(), Some(today)]
            .into_iter()
            .flatten()
            .filter_map(|day| self.period(day))
            .any(|(from, to)| from <= now && now < to)
    }

    /// Returns the open period that begins on this day: its start and its end.
    ///
    /// The hours are those of a clock on the wall. An hour that occurs twice belongs to the window
    /// both times. Hours that a day skips are missing from it, and if it has no others, there is
    /// no period.
    fn period(&self, day: Date) -> Option<(Timestamp, Timestamp)> {
        if !self.days.contains(&day.weekday()) {
            return None;
        }
        let last = if self.from < self.to {
            day
        } else {
            day.tomorrow().ok()?
        };
        let from = self.instant(day.to_datetime(self.from), AmbiguousTimestamp::earlier)?;
        let to = self.instant(last.to_datetime(self.to), AmbiguousTimestamp::later)?;
        (from < to).then_some((from, to))
    }

    /// Returns the instant of a time on the wall. A skipped time is the instant at which the
    /// clocks are set; of two equal times, `which` chooses one.
    fn instant(
        &self,
        time: DateTime,
        which: fn(AmbiguousTimestamp) -> Result<Timestamp, jiff::Error>,
    ) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(time);
        if let AmbiguousOffset::Gap { .. } = ambiguous.offset() {
            // The clocks are set at this instant at the latest.
            let after = ambiguous.later().ok()?;
            let after = after.checked_add(SignedDuration::from_nanos(1)).ok()?;
            return Some(self.zone.preceding(after).next()?.timestamp());
        }
        which(ambiguous).ok()
    }

    /// Returns the next open period: its start (now if it is open) and its end. Returns nothing if
    /// the window does not open within a year.
    pub fn next_open(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let today = now.to_zoned(self.zone.clone()).date();
        // Yesterday's window may extend past midnight.
        let mut days = today.yesterday().ok()?.series(jiff::Span::new().days(1));
        let (from, to) = days
            .by_ref()
            .take(368)
            .filter_map(|day| self.period(day))
            .find(|(_, to)| now < *to)?;
        Some((from.max(now), to))
    }
}

impl FromStr for Window {
    type Err = InvalidWindow;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |why| InvalidWindow {
            text: text.to_owned(),
            why,
        };
        let mut window = Self {
            days: Weekday::Monday.cycle_forward().take(7).collect(),
            from: Time::midnight(),
            to: Time::midnight(),
            zone: TimeZone::system(),
        };
        let mut words = text.split_whitespace().peekable();
        if words.peek().is_none() {
            return Err(refuse("it is empty"));
        }
        if let Some(days) = words.peek().and_then(|word| days(word)) {
            window.days = days;
            words.next();
        }
        let is_hours = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
        if let Some(word) = words.next_if(is_hours) {
            let hours = word.split_once('-');
            let hours = hours.and_then(|(from, to)| Some((hour(from)?, hour(to)?)));
            let ((from, _), (to, ends_the_day)) =
                hours.ok_or_else(|| refuse("its hours are invalid"))?;
            if from == to && !ends_the_day {
                return Err(refuse(
                    "it begins and ends at the same time; leave the hours out for whole days",
                ));
            }
            (window.from, window.to) = (from, to);
        }
        if let Some(word) = words.next() {
            window.zone =
                TimeZone::get(word).map_err(|_| refuse("its days or its time zone are invalid"))?;
        }
        match words.next() {
            None => Ok(window),
            Some(_) => Err(refuse("it has too many parts")),
        }
    }
}

/// Parses a time, and whether it is the end of the day (`24:00`).
fn hour(text: &str) -> Option<(Time, bool)> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute) = (hour.parse().ok()?, minute.parse().ok()?);
    match (hour, minute) {
        (24, 0) => Some((Time::midnight(), true)),
        _ => Some((Time::new(hour, minute, 0, 0).ok()?, false)),
    }
}

/// Parses `mon-fri`, `sat,sun`, `daily`.
fn days(text: &str) -> Option<Vec<Weekday>> {
    if text == "daily" {
        return Some(Weekday::Monday.cycle_forward().take(7).collect());
    }
    let mut days = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => days.push(day(part)?),
            Some((first, last)) => {
                let (first, last) = (day(first)?, day(last)?);
                let span = usize::try_from(first.until(last)).ok()?;
                days.extend(first.cycle_forward().take(span + 1));
            }
        }
    }
    Some(days)
}

fn day(text: &str) -> Option<Weekday> {
    Some(match text.to_ascii_lowercase().get(..3)? {
        "mon" => Weekday::Monday,
        "tue" => Weekday::Tuesday,
        "wed" => Weekday::Wednesday,
        "thu" => Weekday::Thursday,
        "fri" => Weekday::Friday,
        "sat" => Weekday::Saturday,
        "sun" => Weekday::Sunday,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(window: &str, now: &str) -> bool {
        let window: Window = window.parse().expect(window);
        window.is_open(now.parse().expect("a time"))
    }

    #[test]
    fn a_window_is_open_on_its_days_in_its_hours_in_its_zone() {
        // This is a Friday.
        for (now, open) in [
            ("2026-11-13T19:59:59Z", false),
            ("2026-11-13T20:00:00Z", true),
            ("2026-11-13T20:59:59Z", true),
            ("2026-11-13T21:00:00Z", false),
            ("2026-11-14T20:30:00Z", false),
        ] {
            assert_eq!(
                is_open("mon-fri 21:00-22:00 Europe/Berlin", now),
                open,
                "{now}"
            );
        }
        assert!(is_open("sat,sun", "2026-11-14T12:00:00Z"));
        assert!(is_open("daily 00:00-24:00 UTC", "2026-11-14T23:59:59Z"));
        assert!(
            is_open("fri-mon UTC", "2026-11-15T12:00:00Z"),
            "over the week's end"
        );
        assert!(!is_open("fri-mon UTC", "2026-11-17T12:00:00Z"));
    }

    #[test]
    fn past_midnight_it_belongs_to_the_day_on_which_it_began() {
        let window = "fri 22:00-04:00 UTC";
        assert!(is_open(window, "2026-11-13T23:00:00Z"));
        assert!(is_open(window, "2026-11-14T03:59:59Z"));
        assert!(!is_open(window, "2026-11-14T04:00:00Z"));
        assert!(
            !is_open(window, "2026-11-13T03:00:00Z"),
            "Thursday had none"
        );
        assert!(!is_open(window, "2026-11-14T23:00:00Z"));
    }

    #[test]
    fn summer_time_moves_the_hours_with_the_clocks_on_the_wall() {
        let window = "daily 02:00-03:00 Europe/Berlin";
        // In the night to 2026-10-25 the hour occurs twice, and the window is open both times.
        assert!(is_open(window, "2026-10-25T00:30:00Z"));
        assert!(is_open(window, "2026-10-25T01:30:00Z"));
        // In the night to 2026-03-29 the hour does not exist.
        assert!(!is_open(window, "2026-03-29T00:59:59Z"));
        assert!(!is_open(window, "2026-03-29T01:00:00Z"));
    }

    #[test]
    fn a_window_over_the_night_in_which_the_clocks_are_set_keeps_its_hours_on_the_wall() {
        let night = "sat 22:00-04:00 Europe/Berlin";
        // The night to 2026-03-29 is an hour shorter, and the night to 2026-10-25 an hour longer.
        for (now, open) in [
            ("2026-03-28T20:59:59Z", false),
            ("2026-03-28T21:00:00Z", true),
            ("2026-03-29T01:59:59Z", true),
            ("2026-03-29T02:00:00Z", false),
            ("2026-10-24T19:59:59Z", false),
            ("2026-10-24T20:00:00Z", true),
            ("2026-10-25T02:59:59Z", true),
            ("2026-10-25T03:00:00Z", false),
        ] {
            assert_eq!(is_open(night, now), open, "{now}");
        }
        // Half past two does not exist: the window begins when the clocks are set.
        let skipped = "sun 02:30-06:00 Europe/Berlin";
        assert!(!is_open(skipped, "2026-03-29T00:59:59Z"));
        assert!(is_open(skipped, "2026-03-29T01:00:00Z"));
        // Half past two occurs twice: the window begins at the first, and is not closed between.
        assert!(is_open(skipped, "2026-10-25T00:30:00Z"));
        assert!(is_open(skipped, "2026-10-25T01:15:00Z"));
        assert!(is_open(
            "sun 00:00-02:30 Europe/Berlin",
            "2026-10-25T01:29:59Z"
        ));
    }

    #[test]
    fn the_next_opening_agrees_with_the_state_at_every_quarter_of_a_year() {
        for window in [
            "sat 22:00-04:00 Europe/Berlin",
            "daily 02:00-03:00 Europe/Berlin",
            "sun 02:30-06:00 America/New_York",
            "mon-fri 00:00-24:00 Australia/Lord_Howe",
        ] {
            let parsed: Window = window.parse().expect(window);
            let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
            for _ in 0..365 * 24 * 4 {
                let (from, to) = parsed.next_open(now).expect("it opens");
                assert_eq!(from == now, parsed.is_open(now), "{window} at {now}");
                assert!(from < to && parsed.is_open(from), "{window} at {now}");
                now += SignedDuration::from_mins(15);
            }
        }
    }

    #[test]
    fn the_next_opening_is_now_or_on_the_next_of_its_days() {
        let next = |window: &str, now: &str| {
            let window: Window = window.parse().expect(window);
            let (from, to) = window
                .next_open(now.parse().expect("a time"))
                .expect("it opens");
            format!("{from} {to}")
        };
        // This is a Friday.
        let week = "mon-fri 22:00-04:00 UTC";
        for (now, open) in [
            (
                "2026-11-13T12:00:00Z",
                "2026-11-13T22:00:00Z 2026-11-14T04:00:00Z",
            ),
            (
                "2026-11-13T23:00:00Z",
                "2026-11-13T23:00:00Z 2026-11-14T04:00:00Z",
            ),
            (
                "2026-11-14T03:00:00Z",
                "2026-11-14T03:00:00Z 2026-11-14T04:00:00Z",
            ),
            (
                "2026-11-14T04:00:00Z",
                "2026-11-16T22:00:00Z 2026-11-17T04:00:00Z",
            ),
        ] {
            assert_eq!(next(week, now), open, "{now}");
        }
        assert_eq!(
            next("daily 02:00-03:00 Europe/Berlin", "2026-03-28T12:00:00Z"),
            "2026-03-30T00:00:00Z 2026-03-30T01:00:00Z",
            "one night has no such hour"
        );
    }

    #[test]
    fn no_windows_are_always_open_and_other_texts_are_refused() {
        assert!(Windows::default().are_open(Timestamp::UNIX_EPOCH));
        for text in [
            "",
            "someday",
            "mon 25:00-26:00",
            "mon 1-2",
            "mon 21:00-21:00",
            "mon 00:00-00:00",
            "mon UTC UTC",
            "mon 01:00-02:00 Nowhere/At",
        ] {
            let error = text.parse::<Window>().expect_err(text);
            assert!(error.to_string().contains("mon-fri"), "{error}");
        }
    }
}
