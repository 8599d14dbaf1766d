//! The release time of held triggers. Pure.

use bunraku_model::NodeName;
use bunraku_wire::api::TriggerCause;
use bunraku_wire::api::triggers::TriggerLimits;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The most causes kept while a trigger is held back.
const MOST_CAUSES: usize = 200;

/// The held firings of one trigger.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HeldFirings {
    /// The time of each occurrence; as many as the limits need.
    pub occurrences: Vec<Timestamp>,
    pub hosts: Vec<NodeName>,
    pub causes: Vec<TriggerCause>,
    pub deadline_seconds: u64,
    pub by: String,
    /// The time of the last release.
    pub last: Option<Timestamp>,
}

/// The decision about a held trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoldDecision {
    Now,
    At(Timestamp),
    /// Not before it is fired again.
    NotYet,
}

impl HeldFirings {
    pub fn add(
        &mut self,
        hosts: Vec<NodeName>,
        causes: Vec<TriggerCause>,
        limits: &TriggerLimits,
        now: Timestamp,
    ) {
        self.occurrences.push(now);
        if let Some(within) = limits.within_seconds {
            self.occurrences.retain(|at| now < after(*at, within));
        }
        let most = usize::try_from(limits.occurrences.unwrap_or(1))
            .unwrap_or(usize::MAX)
            .clamp(1, 1_000);
        let surplus = self.occurrences.len().saturating_sub(most);
        self.occurrences.drain(..surplus);
        self.hosts.extend(hosts);
        self.hosts.sort();
        self.hosts.dedup();
        let room = MOST_CAUSES.saturating_sub(self.causes.len());
        let surplus = causes.len().saturating_sub(room) as u64;
        self.causes.extend(causes.into_iter().take(room));
        if let Some(last) = self.causes.last_mut() {
            last.more += surplus;
        }
    }

    /// Returns when it may be released, under these limits.
    pub fn due(&self, limits: &TriggerLimits, now: Timestamp) -> HoldDecision {
        let Some(newest) = self.occurrences.last() else {
            return HoldDecision::NotYet;
        };
        if (self.occurrences.len() as u64) < limits.occurrences.unwrap_or(1) {
            return HoldDecision::NotYet;
        }
        let quiet = limits.quiet_seconds.map(|seconds| after(*newest, seconds));
        let interval = match (limits.interval_seconds, self.last) {
            (Some(seconds), Some(last)) => Some(after(last, seconds)),
            _ => None,
        };
        match quiet.max(interval) {
            Some(at) if at > now => HoldDecision::At(at),
            _ => HoldDecision::Now,
        }
    }

    /// The state after a release: only its time.
    pub fn released(now: Timestamp) -> Self {
        Self {
            last: Some(now),
            ..Self::default()
        }
    }
}

/// Returns whether the limits hold anything back at all.
pub fn are_any(limits: &TriggerLimits) -> bool {
    limits.quiet_seconds.is_some()
        || limits.interval_seconds.is_some()
        || limits.occurrences.is_some_and(|count| count > 1)
}

fn after(at: Timestamp, seconds: u64) -> Timestamp {
    let span = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn fired(limits: &TriggerLimits, seconds: &[i64]) -> HeldFirings {
        let mut held = HeldFirings::default();
        for second in seconds {
            held.add(Vec::new(), Vec::new(), limits, at(*second));
        }
        held
    }

    #[test]
    fn quiet_is_counted_from_the_newest() {
        let limits = TriggerLimits {
            quiet_seconds: Some(10),
            ..TriggerLimits::default()
        };
        let held = fired(&limits, &[100, 105]);
        assert_eq!(held.due(&limits, at(112)), HoldDecision::At(at(115)));
        assert_eq!(held.due(&limits, at(115)), HoldDecision::Now);
    }

    #[test]
    fn the_first_of_an_interval_goes_out_at_once_and_the_next_waits() {
        let limits = TriggerLimits {
            interval_seconds: Some(60),
            ..TriggerLimits::default()
        };
        let held = fired(&limits, &[100]);
        assert_eq!(held.due(&limits, at(100)), HoldDecision::Now);
        let mut held = HeldFirings::released(at(100));
        assert_eq!(
            held.due(&limits, at(500)),
            HoldDecision::NotYet,
            "nothing waits"
        );
        held.add(Vec::new(), Vec::new(), &limits, at(110));
        assert_eq!(held.due(&limits, at(110)), HoldDecision::At(at(160)));
    }

    #[test]
    fn occurrences_count_only_within_their_window() {
        let limits = TriggerLimits {
            occurrences: Some(3),
            within_seconds: Some(60),
            ..TriggerLimits::default()
        };
        assert_eq!(
            fired(&limits, &[0, 10]).due(&limits, at(10)),
            HoldDecision::NotYet
        );
        assert_eq!(
            fired(&limits, &[0, 10, 20]).due(&limits, at(20)),
            HoldDecision::Now
        );
        assert_eq!(
            fired(&limits, &[0, 10, 100]).due(&limits, at(100)),
            HoldDecision::NotYet
        );
        assert_eq!(
            fired(&limits, &[0, 90, 100, 110]).due(&limits, at(110)),
            HoldDecision::Now
        );
    }

    #[test]
    fn everything_that_is_held_back_is_remembered_or_counted() {
        let (limits, mut held) = (TriggerLimits::default(), HeldFirings::default());
        for number in 0..1_000 {
            let host = NodeName::new(format!("n{}", number % 3)).expect("a name");
            let cause = TriggerCause {
                reason: Some(number.to_string()),
                ..TriggerCause::new("go", 7)
            };
            held.add(vec![host], vec![cause], &limits, at(number));
        }
        assert_eq!(held.hosts.len(), 3, "each host once");
        assert_eq!(held.causes.len(), MOST_CAUSES);
        let more: u64 = held.causes.iter().map(|cause| cause.more).sum();
        assert_eq!(held.causes.len() as u64 + more, 1_000);
    }
}
