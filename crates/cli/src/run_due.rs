//! The start time of a scheduled run, and its expiry.

use std::time::Duration;

use bunraku_agent::Window;
use bunraku_plan::run::RunStart;
use jiff::civil::{DateTime, Time};
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::duration::HumanDuration;
use crate::failure::Failure;

#[derive(clap::Args, Clone)]
pub(crate) struct DueArguments {
    /// Start at this time: `22:00`, `2026-11-16 22:00`, `2026-11-16T22:00:00Z` or `+30m`
    #[arg(long, value_name = "TIME", conflicts_with = "in_window")]
    at: Option<String>,
    /// Start in this window, now or when it opens: `mon-fri 22:00-04:00 Europe/Berlin`
    #[arg(long, value_name = "WINDOW")]
    in_window: Option<String>,
    /// With `--at`: the run expires if it cannot start within this time
    #[arg(long, value_name = "SPAN", default_value = "1h", requires = "at")]
    late_by: HumanDuration,
}

impl DueArguments {
    pub(crate) fn is_for_later(&self) -> bool {
        self.at.is_some() || self.in_window.is_some()
    }

    /// Returns the start time. `now` gives the time zone.
    pub(crate) fn due(&self, now: &Zoned) -> Result<RunStart, Failure> {
        if let Some(at) = &self.at {
            let due = time(at, now).ok_or_else(|| {
                Failure::usage(format!("`{at}` is not a time"))
                    .hint("write `22:00`, `2026-11-16 22:00`, `2026-11-16T22:00:00Z` or `+30m`")
            })?;
            if due < now.timestamp() {
                return Err(Failure::usage(format!("`{at}` is in the past")));
            }
            return Ok(RunStart {
                not_before: Some(due),
                start_before: Some(later(due, self.late_by.0)?),
            });
        }
        let Some(window) = &self.in_window else {
            return Ok(RunStart::default());
        };
        let window: Window = (window.parse())
            .map_err(|error: bunraku_agent::InvalidWindow| Failure::usage(error.to_string()))?;
        let (from, to) = window
            .next_open(now.timestamp())
            .ok_or_else(|| Failure::usage("the window does not open within a year"))?;
        Ok(RunStart {
            not_before: (from > now.timestamp()).then_some(from),
            start_before: Some(to),
        })
    }
}

fn later(time: Timestamp, span: Duration) -> Result<Timestamp, Failure> {
    let span = SignedDuration::try_from(span).ok();
    span.and_then(|span| time.checked_add(span).ok())
        .ok_or_else(|| Failure::usage("the time is too far in the future"))
}

/// Parses a time in one of the formats that users write.
fn time(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Some(span) = text.strip_prefix('+') {
        let span: HumanDuration = span.trim().parse().ok()?;
        return later(now.timestamp(), span.0).ok();
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let zone = now.time_zone().clone();
    if let Ok(time) = text.parse::<DateTime>() {
        return Some(time.to_zoned(zone).ok()?.timestamp());
    }
    let time: Time = text.parse().ok()?;
    let today = now.date().to_datetime(time).to_zoned(zone.clone()).ok()?;
    if today >= *now {
        return Some(today.timestamp());
    }
    let tomorrow = now.date().tomorrow().ok()?.to_datetime(time);
    Some(tomorrow.to_zoned(zone).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let now: Zoned = "2026-11-16T21:30:00+01:00[Europe/Berlin]"
            .parse()
            .expect("a time");
        let shown = time(text, &now).map(|time| time.to_string());
        assert_eq!(shown.as_deref(), expected, "{text}");
    }

    #[test]
    fn times_are_read_as_people_write_them_in_their_own_zone() {
        check("22:00", Some("2026-11-16T21:00:00Z"));
        check("21:00", Some("2026-11-17T20:00:00Z"));
        check("2026-11-20 06:15", Some("2026-11-20T05:15:00Z"));
        check("2026-11-20T06:15:00Z", Some("2026-11-20T06:15:00Z"));
        check("+30m", Some("2026-11-16T21:00:00Z"));
        for wrong in ["", "soon", "25:00", "+", "+soon", "2026-13-01 00:00"] {
            check(wrong, None);
        }
    }

    #[test]
    fn what_is_past_is_refused_and_what_is_late_expires() {
        let now: Zoned = "2026-11-16T21:30:00+01:00[Europe/Berlin]"
            .parse()
            .expect("a time");
        let arguments = |at: Option<&str>, in_window: Option<&str>| DueArguments {
            at: at.map(str::to_owned),
            in_window: in_window.map(str::to_owned),
            late_by: "1h".parse().expect("a span"),
        };
        assert!(
            arguments(Some("2026-11-16T00:00:00Z"), None)
                .due(&now)
                .is_err()
        );
        let due = arguments(Some("22:00"), None).due(&now);
        let due = due.unwrap_or_else(|_| panic!("it is a time"));
        assert_eq!(
            due.start_before.map(|time| time.to_string()).as_deref(),
            Some("2026-11-16T22:00:00Z")
        );
        let open = arguments(None, Some("daily 21:00-23:00 Europe/Berlin")).due(&now);
        let open = open.unwrap_or_else(|_| panic!("it is a window"));
        assert_eq!(open.not_before, None, "it is open now");
        assert_eq!(
            open.start_before.map(|time| time.to_string()).as_deref(),
            Some("2026-11-16T22:00:00Z")
        );
    }
}
