//! Leases in memory: the active ones, and the next to end.
//!
//! A lease ends by the time since boot, which nobody can set. That time is on disk too, so a
//! restart within one boot changes nothing. Across a reboot the wall clock is used: its value at
//! boot is stored with the leases, and is updated when somebody sets the clock. A lease never gets
//! more time than it was granted.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use rusqlite::Connection;

use super::clock::Clock;
use super::failure::Failure;
use super::rows;
use crate::LeaseId;

/// A larger move than this means that the wall clock was set, not slewed.
const STEP: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    pub(super) granted: Duration,
    /// Since boot.
    pub(super) end: Duration,
}

/// All committed leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    by_id: HashMap<LeaseId, Lease>,
    by_end: BTreeSet<(Duration, LeaseId)>,
}

impl Leases {
    pub(super) fn get(&self, id: LeaseId) -> Option<Lease> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn set(&mut self, id: LeaseId, lease: Option<Lease>) {
        let before = match lease {
            Some(lease) => {
                self.by_end.insert((lease.end, id));
                self.by_id.insert(id, lease)
            }
            None => self.by_id.remove(&id),
        };
        if let Some(before) = before
            && lease.is_none_or(|lease| lease.end != before.end)
        {
            self.by_end.remove(&(before.end, id));
        }
    }

    pub(super) fn next_end(&self) -> Option<Duration> {
        self.by_end.first().map(|(end, _)| *end)
    }

    /// Returns the leases that have ended, in the order of their ends.
    pub(super) fn ended(&self, now: Duration, at_most: usize) -> Vec<LeaseId> {
        self.by_end
            .iter()
            .take_while(|(end, _)| *end <= now)
            .take(at_most)
            .map(|(_, id)| *id)
            .collect()
    }
}

/// The wall clock's value at boot, according to the current wall clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Boot {
    id: String,
    wall: Duration,
}

impl Boot {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Self {
            id: clock.boot(),
            wall: clock.wall().saturating_sub(clock.since_boot()),
        }
    }

    /// Returns whether the wall clock was set since `self` was written.
    pub(super) fn was_set(&self, clock: &dyn Clock) -> bool {
        let wall = clock.wall().saturating_sub(clock.since_boot());
        wall.abs_diff(self.wall) > STEP
    }

    /// Returns the same boot, according to the current wall clock.
    pub(super) fn with_wall_of(&self, clock: &dyn Clock) -> Self {
        Self {
            id: self.id.clone(),
            wall: clock.wall().saturating_sub(clock.since_boot()),
        }
    }

    pub(super) fn write(&self, connection: &Connection) -> Result<(), Failure> {
        let text = format!("{} {}", self.wall.as_millis(), self.id);
        rows::put_meta(connection, "boot", &text)
    }

    fn read(connection: &Connection) -> Result<Option<Self>, Failure> {
        let text = rows::get_meta(connection, "boot")?;
        if text.is_empty() {
            return Ok(None);
        }
        let parsed = text
            .split_once(' ')
            .and_then(|(wall, id)| Some((wall.parse().ok()?, id)));
        match parsed {
            Some((wall, id)) => Ok(Some(Self {
                id: id.to_owned(),
                wall: Duration::from_millis(wall),
            })),
            None => Err(Failure::Damaged(format!("the boot is {text:?}"))),
        }
    }
}

/// Restores the leases of the previous process, relative to this boot.
pub(super) fn take_over(
    connection: &mut Connection,
    clock: &dyn Clock,
) -> Result<(Leases, Boot), Failure> {
    let now = Boot::now(clock);
    let before = Boot::read(connection)?;
    let since_boot = clock.since_boot();
    let mut leases = Leases::default();
    let transaction = connection.transaction()?;
    for (id, granted, end) in rows::read_leases(&transaction)? {
        let (granted, end) = (Duration::from_millis(granted), Duration::from_millis(end));
        let end = match &before {
            Some(before) if before.id == now.id => end,
            Some(before) => (before.wall + end).saturating_sub(now.wall),
            None => since_boot,
        };
        let end = end.min(since_boot + granted);
        rows::put_lease(&transaction, id, milliseconds(granted), milliseconds(end))?;
        leases.set(id, Some(Lease { granted, end }));
    }
    now.write(&transaction)?;
    transaction.commit()?;
    Ok((leases, now))
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Lease, Leases};
    use crate::LeaseId;

    #[test]
    fn a_renewed_lease_ends_only_at_its_new_end() {
        let mut leases = Leases::default();
        let second = Duration::from_secs(1);
        let lease = |end: u32| {
            Some(Lease {
                granted: second,
                end: second * end,
            })
        };
        leases.set(LeaseId(1), lease(1));
        leases.set(LeaseId(2), lease(2));
        leases.set(LeaseId(1), lease(3));
        leases.set(LeaseId(2), lease(2));
        assert_eq!(leases.ended(second * 2, 10), [LeaseId(2)]);
        assert_eq!(leases.next_end(), Some(second * 2));
        leases.set(LeaseId(2), None);
        assert_eq!(leases.next_end(), Some(second * 3));
        leases.set(LeaseId(1), None);
        assert_eq!(leases.next_end(), None);
        assert_eq!(leases.get(LeaseId(1)), None);
    }
}
