//! The budget of firings per node and trigger. It ends loops whatever nodes pass on.
//!
//! Chains of causes travel through nodes, and a node can drop them. So servers
//! also count what each node fires. A node that has used up its budget for a
//! trigger is stopped until it has been quiet for long enough: attempts count,
//! too, so a loop does not continue at a lower rate.

use std::collections::BTreeMap;

use bunraku_control::document::{self, Decision};
use bunraku_control::{ServiceError, keys};
use bunraku_model::{NodeName, TriggerName};
use bunraku_wire::api::triggers::{DEFAULT_BUDGET, TriggerLimits};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Triggers;

/// The period over which firings are counted.
const PERIOD: SignedDuration = SignedDuration::from_hours(1);

/// The most triggers that one node may fire within the period.
const MOST_TRIGGERS: usize = 200;

/// The largest budget. Each firing within the period is stored as a timestamp.
pub(super) const MOST_FIRINGS: u64 = 1_000;

/// The firings of one node within the period.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct FiringCounts {
    triggers: BTreeMap<String, TriggerCount>,
}

/// The firings of one trigger by one node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct TriggerCount {
    /// The newest attempts, oldest first.
    attempts: Vec<Timestamp>,
    /// The budget is used up, and the history says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exhausted: bool,
}

/// The decision about one firing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spending {
    Allowed,
    /// The budget is used up. `first` if it was not before.
    Exhausted {
        first: bool,
    },
}

impl FiringCounts {
    /// Counts an attempt. Returns `None` if the node fires too many triggers.
    fn count(&mut self, trigger: &TriggerName, budget: u64, now: Timestamp) -> Option<Spending> {
        let since = now.checked_sub(PERIOD).unwrap_or(Timestamp::MIN);
        for count in self.triggers.values_mut() {
            // Times from a clock that was set back count as well.
            count.attempts.retain(|at| *at > since);
        }
        self.triggers.retain(|_, count| !count.attempts.is_empty());
        if self.triggers.len() >= MOST_TRIGGERS && !self.triggers.contains_key(trigger.as_str()) {
            return None;
        }
        let budget = usize::try_from(budget.clamp(1, MOST_FIRINGS)).unwrap_or(1);
        let count = self.triggers.entry(trigger.to_string()).or_default();
        let exhausted = count.attempts.len() >= budget;
        count.attempts.push(now);
        let surplus = count.attempts.len().saturating_sub(budget);
        count.attempts.drain(..surplus);
        let first = exhausted && !count.exhausted;
        count.exhausted = exhausted;
        Some(if exhausted {
            Spending::Exhausted { first }
        } else {
            Spending::Allowed
        })
    }
}

impl Triggers {
    /// Counts a firing by a node against its budget for the trigger.
    pub(super) async fn spend(
        &self,
        node: &NodeName,
        trigger: &TriggerName,
        limits: &TriggerLimits,
    ) -> Result<Spending, ServiceError> {
        let budget = limits.budget.unwrap_or(DEFAULT_BUDGET);
        let now = self.clock.now();
        let mut spending = None;
        let key = keys::trigger_budget(node);
        document::update(&*self.store, &key, |current: Option<FiringCounts>| {
            let mut counts = current.unwrap_or_default();
            spending = counts.count(trigger, budget, now);
            Ok(Decision::Write(counts))
        })
        .await?;
        spending.ok_or_else(|| ServiceError::Busy {
            message: format!(
                "`{node}` fired {MOST_TRIGGERS} different triggers within an hour; try again later"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn trigger(name: &str) -> TriggerName {
        TriggerName::new(name).expect("a name")
    }

    #[test]
    fn a_budget_is_exhausted_and_returns_after_an_hour_of_quiet() {
        let mut counts = FiringCounts::default();
        let go = trigger("go");
        for second in 0..3 {
            assert_eq!(counts.count(&go, 3, at(second)), Some(Spending::Allowed));
        }
        let exhausted = |first| Some(Spending::Exhausted { first });
        assert_eq!(counts.count(&go, 3, at(3)), exhausted(true));
        assert_eq!(counts.count(&go, 3, at(4)), exhausted(false));
        assert_eq!(
            counts.count(&trigger("other"), 3, at(4)),
            Some(Spending::Allowed)
        );
        assert_eq!(counts.count(&go, 3, at(3_604)), Some(Spending::Allowed));
    }

    #[test]
    fn a_loop_that_goes_on_trying_stays_stopped() {
        let mut counts = FiringCounts::default();
        let go = trigger("go");
        let spent: Vec<_> = (0..1_000)
            .map(|round| counts.count(&go, 30, at(round * 60)))
            .collect();
        let allowed = spent
            .iter()
            .filter(|spending| **spending == Some(Spending::Allowed));
        assert_eq!(allowed.count(), 30);
    }

    #[test]
    fn a_node_cannot_fill_the_store_with_names_of_triggers() {
        let mut counts = FiringCounts::default();
        let refused = (0..1_000)
            .filter(|number| {
                counts
                    .count(&trigger(&format!("t{number}")), 30, at(0))
                    .is_none()
            })
            .count();
        assert_eq!(refused, 1_000 - MOST_TRIGGERS);
        assert_eq!(counts.triggers.len(), MOST_TRIGGERS);
    }
}
