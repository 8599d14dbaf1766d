//! The firings that wait for one node, on the server's side. Pure.
//!
//! At most one run command for triggers is on its way to a node. Later firings
//! wait here and are sent together as the next command, so that a thousand
//! firings at one node need only a few commands. A command that is on its way is
//! never extended: the node may already have accepted it.

use bunraku_model::{CommandId, TriggerName};
use bunraku_wire::api::TriggerCause;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::chain;

/// The most causes kept one by one for a node; further ones are only counted.
const MOST_WAITING: usize = 200;

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct NodeQueue {
    pub(super) under_way: Option<InFlightCommand>,
    #[serde(default)]
    pub(super) waiting: Vec<WaitingCause>,
    /// The number of causes beyond those kept one by one.
    #[serde(default)]
    pub(super) more: u64,
}

/// The command that is on its way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct InFlightCommand {
    pub(super) command: CommandId,
    pub(super) triggers: Vec<TriggerName>,
    /// The firings that it contains: repeating one of them changes nothing.
    pub(super) causes: Vec<TriggerCause>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct WaitingCause {
    pub(super) trigger: TriggerName,
    pub(super) cause: TriggerCause,
    pub(super) expires: Timestamp,
}

impl NodeQueue {
    /// Adds causes to the waiting ones. Returns whether any of them is new.
    pub(super) fn add(
        &mut self,
        trigger: &TriggerName,
        causes: &[TriggerCause],
        expires: Timestamp,
    ) -> bool {
        let mut added = false;
        for cause in causes {
            let known = cause.firing.is_some_and(|firing| {
                let under_way = self.under_way.iter().any(|under_way| {
                    chain::is_known(&under_way.causes, firing)
                        && (under_way.causes.iter()).any(|known| is_same(known, cause))
                });
                let waits = |waiting: &WaitingCause| is_same(&waiting.cause, cause);
                under_way || self.waiting.iter().any(waits)
            });
            if known {
                continue;
            }
            added = true;
            if self.waiting.len() >= MOST_WAITING {
                self.more += 1;
                // The run must still start as late as the latest of them allows.
                if let Some(last) = self.waiting.last_mut() {
                    last.expires = last.expires.max(expires);
                }
                continue;
            }
            self.waiting.push(WaitingCause {
                trigger: trigger.clone(),
                cause: cause.clone(),
                expires,
            });
        }
        added
    }

    /// Removes expired causes. Returns their triggers.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<TriggerName> {
        let (late, on_time): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.expires <= now);
        self.waiting = on_time;
        triggers_of(late.iter().map(|waiting| &waiting.trigger))
    }

    /// Turns everything that waits into the next command. Returns its causes and
    /// its deadline, or `None` if nothing waits or a command is on its way.
    pub(super) fn send(&mut self, command: CommandId) -> Option<(Vec<TriggerCause>, Timestamp)> {
        if self.under_way.is_some() {
            return None;
        }
        let expires = self.waiting.iter().map(|waiting| waiting.expires).max()?;
        let waiting = std::mem::take(&mut self.waiting);
        let triggers = triggers_of(waiting.iter().map(|waiting| &waiting.trigger));
        let mut causes: Vec<TriggerCause> =
            waiting.into_iter().map(|waiting| waiting.cause).collect();
        if let Some(last) = causes.last_mut() {
            last.more += std::mem::take(&mut self.more);
        }
        self.under_way = Some(InFlightCommand {
            command,
            triggers,
            causes: causes.clone(),
        });
        Some((causes, expires))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_none() && self.waiting.is_empty()
    }
}

/// Returns whether two causes are the same firing by the same path, however many came with it.
fn is_same(one: &TriggerCause, other: &TriggerCause) -> bool {
    one.firing == other.firing
        && one.name == other.name
        && one.chain == other.chain
        && one.labels == other.labels
}

fn triggers_of<'a>(names: impl Iterator<Item = &'a TriggerName>) -> Vec<TriggerName> {
    let mut names: Vec<TriggerName> = names.cloned().collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_model::FiringId;
    use uuid::Uuid;

    fn cause(number: u128) -> TriggerCause {
        TriggerCause {
            firing: Some(FiringId(Uuid::from_u128(number))),
            ..TriggerCause::new("go", 7)
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn add(queue: &mut NodeQueue, number: u128, expires: i64) -> bool {
        let trigger = TriggerName::new("go").expect("a name");
        queue.add(&trigger, &[cause(number)], at(expires))
    }

    fn id(number: u128) -> CommandId {
        CommandId(Uuid::from_u128(number))
    }

    #[test]
    fn one_command_is_on_its_way_and_what_comes_meanwhile_is_the_next() {
        let mut queue = NodeQueue::default();
        assert!(add(&mut queue, 1, 100));
        assert!(queue.send(id(1)).is_some());
        assert!(add(&mut queue, 2, 100) && add(&mut queue, 3, 200));
        assert_eq!(queue.send(id(2)), None, "one is on its way");
        queue.under_way = None;
        let (causes, expires) = queue.send(id(2)).expect("the next");
        assert_eq!((causes.len(), expires), (2, at(200)));
        queue.under_way = None;
        assert!(queue.is_empty() && queue.send(id(3)).is_none());
    }

    #[test]
    fn the_same_firing_again_changes_nothing_whether_it_waits_or_is_on_its_way() {
        let mut queue = NodeQueue::default();
        assert!(add(&mut queue, 1, 100));
        assert!(!add(&mut queue, 1, 100), "it waits");
        queue.send(id(1));
        assert!(!add(&mut queue, 1, 100), "it is on its way");
        // Also if it is the last of very many, which contains the count of the further ones.
        let mut queue = NodeQueue::default();
        for number in 0..=MOST_WAITING as u128 {
            add(&mut queue, number, 100);
        }
        queue.send(id(1));
        assert!(!add(&mut queue, MOST_WAITING as u128 - 1, 100));
    }

    #[test]
    fn very_many_are_kept_one_by_one_up_to_a_limit_and_the_others_are_counted() {
        let mut queue = NodeQueue::default();
        for number in 0..1_000 {
            assert!(add(
                &mut queue,
                number,
                100 + i64::try_from(number).unwrap_or(0)
            ));
        }
        assert_eq!(queue.waiting.len(), MOST_WAITING);
        let (causes, expires) = queue.send(id(1)).expect("a command");
        let more: u64 = causes.iter().map(|cause| cause.more).sum();
        assert_eq!(causes.len() as u64 + more, 1_000);
        assert_eq!(expires, at(1_099), "as late as the latest allows");
        assert_eq!(queue.more, 0);
    }

    #[test]
    fn what_is_too_late_goes_and_the_rest_stays() {
        let mut queue = NodeQueue::default();
        add(&mut queue, 1, 100);
        add(&mut queue, 2, 200);
        assert_eq!(queue.expire(at(150)).len(), 1);
        assert_eq!(queue.waiting.len(), 1);
    }
}
