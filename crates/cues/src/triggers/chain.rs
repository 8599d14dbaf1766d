//! Chains of causes, and their ends. Pure.
//!
//! A trigger that a run fires continues the chain of the run's cause. A chain
//! ends when its hops are used up, or when the same node fires the same trigger a
//! second time and no run since the first has changed anything: it can then have
//! no new effect.

use bunraku_model::{FiringId, NodeName, TriggerName};
use bunraku_wire::api::triggers::{DEFAULT_TTL, FireTrigger, StopReason};
use bunraku_wire::api::{Cause, TriggerCause, TriggerHop};
use jiff::Timestamp;

/// The most chains that one firing passes on: those of a run with many causes.
const MOST_CAUSES: usize = 50;

/// The effect of a firing on its chains.
#[derive(Clone, PartialEq, Debug)]
pub enum ChainEffect {
    /// The firing continues, for each of these causes.
    On(Vec<TriggerCause>),
    /// Every chain that led here has ended.
    Stopped {
        why: StopReason,
        chain: Vec<TriggerHop>,
    },
}

/// Continues every chain of the run that fires. A run that was (also) started by
/// something other than a trigger begins a new chain.
pub fn continue_chains(
    trigger: &TriggerName,
    by: Option<&NodeName>,
    request: &FireTrigger,
    now: Timestamp,
) -> ChainEffect {
    let hop = TriggerHop {
        trigger: trigger.to_string(),
        node: by.cloned(),
        changed: request.changed,
        at: now,
    };
    let earlier: Vec<&TriggerCause> = request
        .causes
        .iter()
        .filter_map(|cause| match cause {
            Cause::Trigger(cause) => Some(cause),
            _ => None,
        })
        .collect();
    let wanted = request.ttl.unwrap_or(DEFAULT_TTL);
    let cause = |ttl: u32, chain: Vec<TriggerHop>| TriggerCause {
        reason: request.reason.clone(),
        chain,
        firing: Some(request.id),
        ..TriggerCause::new(trigger.as_str(), ttl)
    };
    if earlier.is_empty() || request.causes.iter().any(begins_a_chain) {
        return match wanted {
            0 => stopped(StopReason::HopLimit, vec![hop]),
            _ => ChainEffect::On(vec![cause(wanted - 1, vec![hop])]),
        };
    }
    let mut on = Vec::new();
    let mut end = None;
    for led_here in earlier {
        let mut chain = led_here.chain.clone();
        chain.push(hop.clone());
        match reason_to_stop(led_here.ttl.min(wanted), &chain) {
            None => on.push(cause(led_here.ttl.min(wanted) - 1, chain)),
            Some(why) => end = end.or(Some((why, chain))),
        }
    }
    on.truncate(MOST_CAUSES);
    match (on.is_empty(), end) {
        (true, Some((why, chain))) => stopped(why, chain),
        _ => ChainEffect::On(on),
    }
}

/// Returns whether a cause is the beginning of a chain. An ordered run is not: if a reactor
/// started it, the chain of that reactor is among the causes, too.
fn begins_a_chain(cause: &Cause) -> bool {
    !matches!(cause, Cause::Trigger(_) | Cause::Run { .. })
}

fn stopped(why: StopReason, chain: Vec<TriggerHop>) -> ChainEffect {
    ChainEffect::Stopped { why, chain }
}

fn reason_to_stop(ttl: u32, chain: &[TriggerHop]) -> Option<StopReason> {
    if is_repeated(chain) {
        return Some(StopReason::Repeated);
    }
    (ttl == 0).then_some(StopReason::HopLimit)
}

/// Returns whether the last hop occurred before, and no run since then changed anything.
fn is_repeated(chain: &[TriggerHop]) -> bool {
    let Some((last, earlier)) = chain.split_last() else {
        return false;
    };
    let before = earlier.iter().rposition(|hop| {
        hop.node.is_some() && hop.node == last.node && hop.trigger == last.trigger
    });
    before.is_some_and(|index| chain[index + 1..].iter().all(|hop| !hop.changed))
}

/// Returns whether one of these causes belongs to this firing.
pub(super) fn is_known(causes: &[TriggerCause], firing: FiringId) -> bool {
    causes.iter().any(|cause| cause.firing == Some(firing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn request(causes: Vec<Cause>, changed: bool) -> FireTrigger {
        FireTrigger {
            id: FiringId(Uuid::nil()),
            hosts: Vec::new(),
            query: None,
            ttl: None,
            reason: None,
            deadline_seconds: None,
            causes,
            changed,
        }
    }

    /// Fires `trigger` from a run on `node` that had these causes.
    fn fire(trigger: &str, node: &str, causes: &[TriggerCause], changed: bool) -> ChainEffect {
        let request = request(
            causes.iter().cloned().map(Cause::Trigger).collect(),
            changed,
        );
        let node = NodeName::new(node).expect("a name");
        let trigger = TriggerName::new(trigger).expect("a name");
        continue_chains(&trigger, Some(&node), &request, Timestamp::UNIX_EPOCH)
    }

    fn on(chained: ChainEffect) -> Vec<TriggerCause> {
        match chained {
            ChainEffect::On(causes) => causes,
            ChainEffect::Stopped { why, chain } => panic!("stopped: {why:?} {chain:?}"),
        }
    }

    /// Returns the number of firings until the chain stops, and the reason.
    fn rounds(ring: &[(&str, &str)], changed: bool) -> (usize, StopReason) {
        let mut causes = Vec::new();
        for (count, (node, trigger)) in ring.iter().cycle().take(100).enumerate() {
            match fire(trigger, node, &causes, changed) {
                ChainEffect::On(next) => causes = next,
                ChainEffect::Stopped { why, .. } => return (count, why),
            }
        }
        panic!("it does not end")
    }

    #[test]
    fn two_nodes_that_cue_each_other_end_when_one_comes_around_unchanged() {
        let ring = [("a", "to b"), ("b", "to a")];
        assert_eq!(rounds(&ring, false), (2, StopReason::Repeated));
        assert_eq!(rounds(&ring, true), (8, StopReason::HopLimit));
    }

    #[test]
    fn a_ring_of_three_ends() {
        let ring = [("a", "x"), ("b", "x"), ("c", "x")];
        assert_eq!(rounds(&ring, false), (3, StopReason::Repeated));
        assert_eq!(rounds(&ring, true), (8, StopReason::HopLimit));
    }

    #[test]
    fn a_node_that_cues_itself_ends() {
        assert_eq!(rounds(&[("a", "again")], false), (1, StopReason::Repeated));
        assert_eq!(rounds(&[("a", "again")], true), (8, StopReason::HopLimit));
    }

    #[test]
    fn a_change_in_between_lets_it_go_around_once_more() {
        let first = on(fire("to b", "a", &[], false));
        let second = on(fire("to a", "b", &first, true));
        on(fire("to b", "a", &second, false));
    }

    #[test]
    fn a_run_with_a_cause_of_another_kind_starts_a_new_chain() {
        let first = on(fire("again", "a", &[], false));
        let causes = vec![Cause::Trigger(first[0].clone()), Cause::Schedule];
        let request = request(causes, false);
        let (node, trigger) = (
            NodeName::new("a").expect("a name"),
            TriggerName::new("again").expect("a name"),
        );
        let chained = continue_chains(&trigger, Some(&node), &request, Timestamp::UNIX_EPOCH);
        assert_eq!(on(chained)[0].chain.len(), 1);
    }

    #[test]
    fn one_chain_that_continues_is_enough() {
        let old = on(fire("again", "a", &[], false));
        let other = on(fire("elsewhere", "b", &[], false));
        let causes = on(fire(
            "again",
            "a",
            &[old[0].clone(), other[0].clone()],
            false,
        ));
        assert_eq!(causes.len(), 1, "the chain that repeats is dropped");
        assert_eq!(causes[0].chain[0].trigger, "elsewhere");
    }

    #[test]
    fn a_run_with_very_many_causes_hands_on_a_bounded_number_of_chains() {
        let causes: Vec<TriggerCause> = (0..1_000)
            .flat_map(|number| on(fire(&format!("t{number}"), "b", &[], false)))
            .collect();
        assert_eq!(on(fire("next", "a", &causes, true)).len(), MOST_CAUSES);
    }

    #[test]
    fn people_may_fire_the_same_trigger_as_often_as_they_like() {
        let request = |causes: Vec<Cause>| FireTrigger {
            id: FiringId(Uuid::nil()),
            hosts: Vec::new(),
            query: None,
            ttl: Some(3),
            reason: None,
            deadline_seconds: None,
            causes,
            changed: false,
        };
        let trigger = TriggerName::new("x").expect("a name");
        let first = on(continue_chains(
            &trigger,
            None,
            &request(vec![]),
            Timestamp::UNIX_EPOCH,
        ));
        let causes = first.into_iter().map(Cause::Trigger).collect();
        on(continue_chains(
            &trigger,
            None,
            &request(causes),
            Timestamp::UNIX_EPOCH,
        ));
    }
}
