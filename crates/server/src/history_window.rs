//! The history that a store keeps: points in time, each with the newest revision at that time.
//!
//! The window is a document in the store, so it survives restarts, and all servers share one. It
//! is pure: the caller passes the time.
//!
//! The times are those of the servers' clocks. A clock that jumps ahead shortens the history, which
//! only costs time: followers of the store read everything again. A clock that jumps back does not
//! stop compaction, because points in the future count from now.

use std::time::Duration;

use bunraku_store::Revision;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The number of points in a full window. The history is longer than configured by at most one
/// interval.
const POINTS: u32 = 12;

/// The newest revision at some time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct HistoryPoint {
    at: Timestamp,
    revision: u64,
}

/// The points, oldest first.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct HistoryWindow(Vec<HistoryPoint>);

impl HistoryWindow {
    /// Returns the revision before which everything is old enough to be dropped.
    pub(crate) fn outdated(&self, now: Timestamp, kept: Duration) -> Option<Revision> {
        let mut points = self.0.iter().rev();
        let old = points.find(|point| age(point, now) >= kept)?;
        Some(Revision(old.revision))
    }

    /// Returns the window with the newest revision and without points that are no longer needed,
    /// if anything changes.
    pub(crate) fn advanced(
        &self,
        now: Timestamp,
        newest: Revision,
        kept: Duration,
    ) -> Option<Self> {
        let mut points: Vec<HistoryPoint> = self.0.clone();
        for point in &mut points {
            point.at = point.at.min(now);
        }
        points.retain(|point| age(point, now) < kept);
        let interval = kept / POINTS;
        let is_due = |last: &HistoryPoint| age(last, now) >= interval;
        if points.last().is_none_or(is_due) {
            points.push(HistoryPoint {
                at: now,
                revision: newest.0,
            });
        }
        let advanced = Self(points);
        (advanced != *self).then_some(advanced)
    }
}

fn age(point: &HistoryPoint, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(point.at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Duration = Duration::from_secs(120);

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn only_what_is_older_than_the_history_goes() {
        let mut window = HistoryWindow::default();
        let mut look = |now: i64, newest: u64| {
            let old = window.outdated(second(now), KEPT);
            if let Some(advanced) = window.advanced(second(now), Revision(newest), KEPT) {
                window = advanced;
            }
            old.map(|old| old.0)
        };
        assert_eq!(look(0, 5), None);
        assert_eq!(look(60, 9), None);
        assert_eq!(look(119, 12), None);
        assert_eq!(look(120, 12), Some(5));
        assert_eq!(look(121, 12), None);
        assert_eq!(look(1_000, 20), Some(12));
        assert_eq!(look(1_001, 20), None);
    }

    #[test]
    fn it_is_written_once_per_interval() {
        let window = HistoryWindow::default();
        let first = window.advanced(second(0), Revision(1), KEPT).expect("new");
        assert_eq!(first.advanced(second(9), Revision(7), KEPT), None);
        assert!(first.advanced(second(10), Revision(7), KEPT).is_some());
        let mut window = first;
        for now in 0..1_000 {
            let advanced = window.advanced(second(now), Revision(1), KEPT);
            window = advanced.unwrap_or(window);
            assert!(window.0.len() <= POINTS as usize + 1);
        }
    }

    #[test]
    fn a_clock_that_goes_back_delays_compaction_but_does_not_stop_it() {
        let window = HistoryWindow::default();
        let window = window.advanced(second(9_000), Revision(3), KEPT);
        let window = window.expect("a first point");
        let back = second(100);
        assert_eq!(window.outdated(back, KEPT), None);
        let window = window.advanced(back, Revision(4), KEPT).expect("moved");
        assert_eq!(window.outdated(second(220), KEPT), Some(Revision(3)));
    }
}
