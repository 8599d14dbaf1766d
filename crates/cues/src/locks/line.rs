//! The holders of a lock and its waiters, in the order of arrival. Pure.

use bunraku_model::{FiringId, NodeMatcher, NodeName, TriggerName};
use bunraku_wire::api::locks::Holder;
use jiff::Timestamp;
use std::collections::BTreeSet;

use bunraku_model::LockName;

use crate::triggers::AnnouncedFiring;
use serde::{Deserialize, Serialize};

/// The document of one lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LockLine {
    pub(super) slots: u32,
    /// True if an operator set the number of slots: callers then cannot.
    #[serde(default)]
    pub(super) defined: bool,
    #[serde(default)]
    pub(super) on_change: Option<TriggerName>,
    /// The hosts of that trigger. If empty, the old and the new holders.
    #[serde(default)]
    pub(super) hosts: Vec<NodeName>,
    /// The nodes that may hold it. `None` in a lock that is older than permissions: its holder
    /// keeps it, and no other node gets it.
    #[serde(default)]
    pub(super) may_hold: Option<Vec<NodeMatcher>>,
    #[serde(default)]
    pub(super) may_see: Vec<NodeMatcher>,
    /// The last token. It never decreases.
    pub(super) last_token: u64,
    pub(super) holders: Vec<Holder>,
    /// The waiters, first come, first served.
    pub(super) waiters: Vec<Holder>,
}

impl Default for LockLine {
    fn default() -> Self {
        Self {
            slots: 1,
            defined: false,
            on_change: None,
            hosts: Vec::new(),
            may_hold: None,
            may_see: Vec::new(),
            last_token: 0,
            holders: Vec::new(),
            waiters: Vec::new(),
        }
    }
}

/// The place of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinePlace {
    Holds { token: u64 },
    Waits { ahead: usize },
    Nowhere,
}

/// The dead who were removed, and the waiters who moved up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LineUpdate {
    pub(super) departed: Vec<Holder>,
    pub(super) promoted: Vec<Holder>,
}

impl LockLine {
    pub(super) fn place(&self, owner: &str, session: &str) -> LinePlace {
        let same = |holder: &&Holder| holder.owner == owner && holder.session == session;
        if let Some(holder) = self.holders.iter().find(same) {
            return LinePlace::Holds {
                token: holder.token,
            };
        }
        match self.waiters.iter().position(|holder| same(&holder)) {
            Some(ahead) => LinePlace::Waits { ahead },
            None => LinePlace::Nowhere,
        }
    }

    /// Adds a waiter at the end of the line.
    pub(super) fn join(&mut self, waiter: Holder) {
        self.waiters.push(waiter);
    }

    /// Removes the dead and lets those behind them move up, in order.
    pub(super) fn settle(&mut self, alive: impl Fn(&Holder) -> bool, now: Timestamp) -> LineUpdate {
        let mut settled = LineUpdate::default();
        for list in [&mut self.holders, &mut self.waiters] {
            let (living, dead) = std::mem::take(list).into_iter().partition(&alive);
            *list = living;
            settled.departed.extend::<Vec<Holder>>(dead);
        }
        while self.holders.len() < self.slots as usize && !self.waiters.is_empty() {
            let mut next = self.waiters.remove(0);
            self.last_token += 1;
            next.token = self.last_token;
            next.since = now;
            self.holders.push(next.clone());
            settled.promoted.push(next);
        }
        settled
    }
}

/// Returns the firing for a change of holders, if there is one.
pub(super) fn announced(
    before: &LockLine,
    after: &LockLine,
    lock: &LockName,
    id: FiringId,
    at: Timestamp,
) -> Option<AnnouncedFiring> {
    let trigger = after.on_change.clone()?;
    let owners = |line: &LockLine| -> BTreeSet<String> {
        line.holders
            .iter()
            .map(|holder| holder.owner.clone())
            .collect()
    };
    let (old, new) = (owners(before), owners(after));
    // A lock that is merely released has no new holder to announce.
    if new.is_empty() || old == new {
        return None;
    }
    let hosts = if after.hosts.is_empty() {
        old.union(&new)
            .filter_map(|owner| NodeName::new(&**owner).ok())
            .collect()
    } else {
        after.hosts.clone()
    };
    let now: Vec<&str> = new.iter().map(String::as_str).collect();
    let reason = format!("`{lock}` is held by {}", now.join(", "));
    let by = "a lock".to_owned();
    Some(AnnouncedFiring::beginning(
        id, trigger, by, hosts, reason, at,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(owner: &str) -> Holder {
        Holder {
            owner: owner.to_owned(),
            session: "s".to_owned(),
            reason: None,
            since: Timestamp::UNIX_EPOCH,
            token: 0,
        }
    }

    fn line(slots: u32, owners: &[&str]) -> LockLine {
        let mut line = LockLine {
            slots,
            ..LockLine::default()
        };
        for owner in owners {
            line.join(holder(owner));
        }
        line
    }

    fn names(holders: &[Holder]) -> Vec<&str> {
        holders.iter().map(|holder| &*holder.owner).collect()
    }

    #[test]
    fn those_who_came_first_hold_it_first() {
        let mut line = line(2, &["a", "b", "c", "d"]);
        let settled = line.settle(|_| true, Timestamp::UNIX_EPOCH);
        assert_eq!(names(&settled.promoted), ["a", "b"]);
        assert_eq!(line.place("a", "s"), LinePlace::Holds { token: 1 });
        assert_eq!(line.place("d", "s"), LinePlace::Waits { ahead: 1 });
        assert_eq!(line.place("e", "s"), LinePlace::Nowhere);
    }

    #[test]
    fn the_dead_leave_and_the_next_gets_a_higher_token() {
        let mut line = line(1, &["a", "b", "c"]);
        line.settle(|_| true, Timestamp::UNIX_EPOCH);
        let settled = line.settle(
            |holder| holder.owner != "a" && holder.owner != "b",
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(names(&settled.departed), ["a", "b"]);
        assert_eq!(line.place("c", "s"), LinePlace::Holds { token: 2 });
        line.settle(|_| false, Timestamp::UNIX_EPOCH);
        line.join(holder("a"));
        line.settle(|_| true, Timestamp::UNIX_EPOCH);
        assert_eq!(
            line.place("a", "s"),
            LinePlace::Holds { token: 3 },
            "never an old token"
        );
    }

    #[test]
    fn fewer_slots_than_holders_take_nothing_away() {
        let mut line = line(2, &["a", "b", "c"]);
        line.settle(|_| true, Timestamp::UNIX_EPOCH);
        line.slots = 1;
        assert_eq!(
            line.settle(|_| true, Timestamp::UNIX_EPOCH),
            LineUpdate::default()
        );
        assert_eq!(names(&line.holders), ["a", "b"]);
    }

    #[test]
    fn only_another_holder_is_news_and_it_goes_to_the_old_and_the_new() {
        let id = FiringId(uuid::Uuid::nil());
        let (lock, at) = (LockName::new("db").expect("a name"), Timestamp::UNIX_EPOCH);
        let trigger = TriggerName::new("new master").expect("a name");
        let held_by = |owners: &[&str]| {
            let mut line = line(1, owners);
            line.on_change = Some(trigger.clone());
            line.settle(|_| true, at);
            line
        };
        let notified = |before: &LockLine, after: &LockLine| {
            let notified = announced(before, after, &lock, id, at)?;
            Some(
                notified
                    .hosts
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>(),
            )
        };
        let (nobody, a, b) = (held_by(&[]), held_by(&["a"]), held_by(&["b"]));
        assert_eq!(notified(&nobody, &a), Some(vec!["a".to_owned()]));
        assert_eq!(notified(&a, &b), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(notified(&a, &held_by(&["a", "b"])), None, "one more waits");
        assert_eq!(notified(&a, &nobody), None, "it is merely given back");
        let mut silent = b.clone();
        silent.on_change = None;
        assert_eq!(notified(&a, &silent), None, "nobody wants to know");
        let mut named = b.clone();
        named.hosts = vec![NodeName::new("app-1").expect("a name")];
        assert_eq!(notified(&a, &named), Some(vec!["app-1".to_owned()]));
    }
}
