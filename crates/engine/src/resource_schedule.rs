//! Puppet's `schedule`: when a resource may be applied.
//!
//! A resource names a `Schedule` of its catalog, or one of Puppet's own (`hourly`, `daily`, `never`
//! …). The decision is pure: the time and the time of the last application come from outside.
//! [`ScheduleRecord`] keeps the latter between runs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bunraku_model::catalog::ResourceReference;
use jiff::Zoned;
use serde_json::Value;

use crate::{Declaration, Refusal};

const FILE: &str = "schedules";
const DAY: u32 = 24 * 3600;

/// The longest time between two applications.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Period {
    Always,
    Never,
    Hourly,
    Daily,
    Weekly,
    Monthly,
}

impl Period {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "never" => Self::Never,
            "hourly" => Self::Hourly,
            "daily" => Self::Daily,
            "weekly" => Self::Weekly,
            "monthly" => Self::Monthly,
            _ => return None,
        })
    }

    fn seconds(self) -> i64 {
        match self {
            Self::Always | Self::Never => 0,
            Self::Hourly => 3600,
            Self::Daily => i64::from(DAY),
            Self::Weekly => 7 * i64::from(DAY),
            Self::Monthly => 30 * i64::from(DAY),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ResourceSchedule {
    name: String,
    period: Period,
    /// How often in one period.
    repeat: u32,
    /// `periodmatch => number`: once in each hour, day, week or month of the calendar.
    by_calendar: bool,
    /// Seconds of the day. An end before its start is on the next day.
    ranges: Vec<(u32, u32)>,
    /// Days of the week, from 0 for Sunday. None means every day.
    weekdays: Vec<i8>,
}

impl ResourceSchedule {
    /// Returns one of Puppet's own schedules.
    pub(crate) fn built_in(name: &str) -> Option<Self> {
        let (period, repeat) = match name {
            "puppet" => (Period::Hourly, 2),
            other => (Period::read(other)?, 1),
        };
        Some(Self {
            name: name.to_owned(),
            period,
            repeat,
            by_calendar: false,
            ranges: Vec::new(),
            weekdays: Vec::new(),
        })
    }

    /// Reads a `Schedule` of a catalog.
    pub(crate) fn read(name: &str, declaration: &Declaration) -> Result<Self, Refusal> {
        let period = match declaration.text("period")?.as_deref() {
            None => Period::Always,
            Some(word) => Period::read(word).ok_or_else(|| {
                declaration.refuse("period", "hourly, daily, weekly, monthly or never")
            })?,
        };
        let repeat = match declaration.value("repeat") {
            None => Some(1),
            Some(Value::String(text)) => text.parse().ok(),
            Some(value) => value.as_u64().and_then(|count| u32::try_from(count).ok()),
        };
        let repeat = repeat.filter(|count| *count > 0);
        let by_calendar = match declaration.text("periodmatch")?.as_deref() {
            None | Some("distance") => false,
            Some("number") => true,
            Some(_) => return Err(declaration.refuse("periodmatch", "distance or number")),
        };
        let mut ranges = Vec::new();
        for text in declaration.texts("range")?.unwrap_or_default() {
            let range = range(&text);
            ranges.push(range.ok_or_else(|| {
                declaration.refuse(
                    "range",
                    "hours with an optional minute, such as `22:30 - 4`",
                )
            })?);
        }
        Ok(Self {
            name: name.to_owned(),
            period,
            repeat: repeat.ok_or_else(|| declaration.refuse("repeat", "a number from 1"))?,
            by_calendar,
            ranges,
            weekdays: weekdays(declaration)?,
        })
    }

    /// Returns true if the decision needs the time of the last application.
    fn counts(&self) -> bool {
        !matches!(self.period, Period::Always | Period::Never)
    }

    /// Returns the reason why a resource is not applied now. `last` is the time of its last
    /// application.
    pub(crate) fn refusal(&self, now: &Zoned, last: Option<&Zoned>) -> Option<String> {
        let name = &self.name;
        if self.period == Period::Never {
            return Some(format!("schedule `{name}`: never"));
        }
        if !self.is_open(now) {
            return Some(format!("schedule `{name}`: not at this time"));
        }
        let last = last.filter(|_| self.counts())?;
        let elapsed = now.timestamp().as_second() - last.timestamp().as_second();
        // A clock that was set back does not hold a resource back forever.
        if elapsed < 0 {
            return None;
        }
        let is_due = if self.by_calendar {
            let date = |time: &Zoned| (time.year(), time.month(), time.day());
            match self.period {
                Period::Hourly => (date(now), now.hour()) != (date(last), last.hour()),
                Period::Daily => date(now) != date(last),
                Period::Weekly => {
                    now.date().iso_week_date().week() != last.date().iso_week_date().week()
                }
                _ => (now.year(), now.month()) != (last.year(), last.month()),
            }
        } else {
            elapsed >= self.period.seconds() / i64::from(self.repeat)
        };
        (!is_due).then(|| format!("schedule `{name}`: already applied in this period"))
    }

    fn is_open(&self, now: &Zoned) -> bool {
        let second = u32::from(now.hour().unsigned_abs()) * 3600
            + u32::from(now.minute().unsigned_abs()) * 60
            + u32::from(now.second().unsigned_abs());
        let today = now.weekday().to_sunday_zero_offset();
        let is_on = |day: i8| self.weekdays.is_empty() || self.weekdays.contains(&day);
        if self.ranges.is_empty() {
            return is_on(today);
        }
        let yesterday = (today + 6) % 7;
        self.ranges.iter().any(|(start, end)| {
            if start <= end {
                is_on(today) && (*start..=*end).contains(&second)
            } else {
                // It belongs to the day on which it starts.
                second >= *start && is_on(today) || second <= *end && is_on(yesterday)
            }
        })
    }
}

fn range(text: &str) -> Option<(u32, u32)> {
    let (start, end) = text.split_once('-')?;
    Some((time(start)?, time(end)?))
}

fn time(text: &str) -> Option<u32> {
    let mut parts = text.trim().split(':').map(|part| part.parse::<u32>().ok());
    let (hour, minute, second) = (
        parts.next()??,
        parts.next().unwrap_or(Some(0))?,
        parts.next().unwrap_or(Some(0))?,
    );
    let is_time = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    is_time.then_some(hour * 3600 + minute * 60 + second)
}

fn weekdays(declaration: &Declaration) -> Result<Vec<i8>, Refusal> {
    const NAMES: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let items = match declaration.value("weekday") {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items.clone(),
        Some(one) => vec![one.clone()],
    };
    let day = |item: &Value| {
        let text = match item {
            Value::String(text) => text.to_lowercase(),
            other => other.to_string(),
        };
        let number = text
            .parse::<i8>()
            .ok()
            .filter(|number| (0..=6).contains(number));
        number.or_else(|| {
            let at = NAMES.iter().position(|name| text.starts_with(name))?;
            i8::try_from(at).ok()
        })
    };
    let days: Option<Vec<i8>> = items.iter().map(day).collect();
    days.ok_or_else(|| declaration.refuse("weekday", "a day of the week, such as `Mon`"))
}

/// The reason why the times cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct ScheduleRecordError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The times at which resources with a schedule were last applied.
#[derive(Default)]
pub(crate) struct ScheduleRecord {
    times: Mutex<BTreeMap<String, i64>>,
}

impl ScheduleRecord {
    /// Loads the record. One that cannot be read counts as empty: a resource is then applied once
    /// too often.
    pub(crate) fn load(directory: &Path) -> Self {
        let text = std::fs::read(directory.join(FILE)).unwrap_or_default();
        Self {
            times: Mutex::new(serde_json::from_slice(&text).unwrap_or_default()),
        }
    }

    pub(crate) fn last(&self, reference: &ResourceReference, zone: &Zoned) -> Option<Zoned> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let second = *times.get(&reference.to_string())?;
        let time = jiff::Timestamp::from_second(second).ok()?;
        Some(time.to_zoned(zone.time_zone().clone()))
    }

    /// Notes the application of a resource whose schedule counts.
    pub(crate) fn note(
        &self,
        schedule: &ResourceSchedule,
        reference: &ResourceReference,
        now: &Zoned,
    ) {
        if schedule.counts() {
            let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.insert(reference.to_string(), now.timestamp().as_second());
        }
    }

    pub(crate) fn save(&self, directory: &Path) -> Result<(), ScheduleRecordError> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.is_empty() {
            return Ok(());
        }
        let path = directory.join(FILE);
        let text = serde_json::to_vec(&*times).unwrap_or_default();
        bunraku_files::replace(&path, &text, 0o600)
            .map_err(|source| ScheduleRecordError { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Zoned {
        format!("{text}[UTC]").parse().expect("a time")
    }

    fn schedule(period: Period, ranges: &[&str], weekdays: &[i8]) -> ResourceSchedule {
        ResourceSchedule {
            period,
            ranges: ranges.iter().filter_map(|text| range(text)).collect(),
            weekdays: weekdays.to_vec(),
            ..ResourceSchedule::built_in("daily").expect("one of Puppet's")
        }
    }

    #[test]
    fn a_range_over_midnight_belongs_to_the_day_on_which_it_starts() {
        // 2026-11-18 is a Wednesday.
        let night = schedule(Period::Always, &["22:30 - 4"], &[3]);
        assert!(night.is_open(&at("2026-11-18T22:30:00+00:00")));
        assert!(night.is_open(&at("2026-11-19T03:59:59+00:00")));
        assert!(!night.is_open(&at("2026-11-18T03:00:00+00:00")));
        assert!(!night.is_open(&at("2026-11-18T12:00:00+00:00")));
        assert!(!night.is_open(&at("2026-11-19T23:00:00+00:00")));
    }

    #[test]
    fn a_period_holds_back_until_it_is_over() {
        let daily = schedule(Period::Daily, &[], &[]);
        let (morning, noon) = (
            at("2026-11-18T01:00:00+00:00"),
            at("2026-11-18T12:00:00+00:00"),
        );
        assert!(daily.refusal(&noon, None).is_none());
        assert!(daily.refusal(&noon, Some(&morning)).is_some());
        assert!(
            daily
                .refusal(&at("2026-11-19T01:00:00+00:00"), Some(&morning))
                .is_none()
        );
        assert!(
            daily.refusal(&morning, Some(&noon)).is_none(),
            "the clock was set back"
        );
        let twice = ResourceSchedule {
            repeat: 2,
            ..daily.clone()
        };
        assert!(
            twice
                .refusal(&at("2026-11-18T13:00:00+00:00"), Some(&morning))
                .is_none()
        );
        let calendar = ResourceSchedule {
            by_calendar: true,
            ..daily
        };
        assert!(
            calendar
                .refusal(&at("2026-11-19T00:00:00+00:00"), Some(&noon))
                .is_none()
        );
        let never = ResourceSchedule::built_in("never").expect("one of Puppet's");
        assert!(never.refusal(&noon, None).is_some());
    }

    #[test]
    fn resources_outside_their_schedule_are_skipped_in_every_run() {
        use crate::types::testing::{apply, assert_refused, lines, noop};
        use serde_json::json;
        let state = tempfile::tempdir().expect("a directory");
        let test = |title: &str, schedule: &str| json!({"type": "Test", "title": title, "parameters": {"changes": true, "schedule": schedule}});
        let schedule = |title: &str, parameters: Value| json!({"type": "Schedule", "title": title, "parameters": parameters});
        let resources = json!([
            schedule("sometimes", json!({"period": "never"})),
            schedule(
                "nightly",
                json!({"period": "daily", "range": "0 - 23:59:59"})
            ),
            test("never", "never"),
            test("own", "sometimes"),
            test("daily", "nightly"),
        ]);
        let skipped = "Test[never] skipped (schedule `never`: never)\nTest[own] skipped (schedule `sometimes`: never)";
        let looked = lines(&noop(state.path(), resources.clone()));
        assert!(looked.contains("Test[daily] pending"), "{looked}");
        assert!(looked.contains(skipped), "{looked}");
        let first = lines(&apply(state.path(), resources.clone()));
        assert!(first.contains("Test[daily] changed"), "{first}");
        assert!(first.contains(skipped), "{first}");
        let second = lines(&apply(state.path(), resources));
        let held = "Test[daily] skipped (schedule `nightly`: already applied in this period)";
        assert!(second.contains(held), "{second}");
        assert_refused(json!([test("lost", "no such")]));
        assert_refused(json!([schedule("odd", json!({"range": "late"}))]));
        assert_refused(json!([schedule("odd", json!({"period": "yearly"}))]));
    }
}
