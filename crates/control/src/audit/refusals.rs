//! The limit on records of refusals.
//!
//! The first refusals of a caller are recorded one by one. Further ones within a window are
//! counted and become one record at its end. Anybody can cause refusals of `anonymous`, so these
//! are limited by address, and all addresses together: however many requests strangers send, the
//! log grows by a bounded number of records per window.
//!
//! Pure: the time is an argument. Counts that are not yet written are lost if the server is
//! killed; the first refusals are already in the log then.

use std::collections::BTreeMap;

use bunraku_wire::api::AuditEntry;
use jiff::{SignedDuration, Timestamp};

/// The refusals of one caller that are recorded one by one in a window.
const PER_CALLER: u32 = 20;
/// The same for one address without a certificate.
const PER_ADDRESS: u32 = 5;
/// The same for all addresses without a certificate together.
const ALL_ADDRESSES: u32 = 50;
/// The addresses that are counted separately in a window.
const MOST_ADDRESSES: usize = 100;
/// The address of all others.
const OTHERS: &str = "others";

pub(super) struct RefusalLimiter {
    window: SignedDuration,
    ends: Option<Timestamp>,
    callers: BTreeMap<String, Refusals>,
    anonymous: u32,
    addresses: usize,
}

#[derive(Default)]
struct Refusals {
    written: u32,
    /// The newest of those that were not written, with their count.
    held: Option<AuditEntry>,
}

impl RefusalLimiter {
    pub(super) fn new(window: SignedDuration) -> Self {
        Self {
            window,
            ends: None,
            callers: BTreeMap::new(),
            anonymous: 0,
            addresses: 0,
        }
    }

    /// Returns the entry if it is to be written now. Otherwise it is counted.
    pub(super) fn admit(&mut self, entry: AuditEntry, now: Timestamp) -> Option<AuditEntry> {
        self.place(entry, now, true)
    }

    /// Counts an entry that cannot be written now.
    pub(super) fn hold(&mut self, entry: AuditEntry, now: Timestamp) {
        self.place(entry, now, false);
    }

    fn place(
        &mut self,
        mut entry: AuditEntry,
        now: Timestamp,
        is_writable: bool,
    ) -> Option<AuditEntry> {
        self.ends
            .get_or_insert(now.checked_add(self.window).unwrap_or(Timestamp::MAX));
        let is_anonymous = entry.certificate.is_none();
        let mut key = match (is_anonymous, &entry.address) {
            (false, _) => format!("name {}", entry.who),
            (true, Some(address)) => format!("address {address}"),
            (true, None) => "address".to_owned(),
        };
        if is_anonymous && !self.callers.contains_key(&key) {
            if self.addresses >= MOST_ADDRESSES {
                key = format!("address {OTHERS}");
                entry.address = Some(OTHERS.to_owned());
            } else {
                self.addresses += 1;
            }
        }
        let refusals = self.callers.entry(key).or_default();
        let may_write = if is_anonymous {
            refusals.written < PER_ADDRESS && self.anonymous < ALL_ADDRESSES
        } else {
            refusals.written < PER_CALLER
        };
        if may_write && is_writable {
            refusals.written += 1;
            self.anonymous += u32::from(is_anonymous);
            return Some(entry);
        }
        match &mut refusals.held {
            held @ None => *held = Some(entry),
            Some(held) => {
                if held.action != entry.action {
                    held.action = "several-actions".to_owned();
                }
                if held.object != entry.object {
                    held.object = None;
                }
                held.details.clear();
                held.count += 1;
                held.request_id = None;
                (held.status, held.message) = (entry.status, entry.message);
            }
        }
        None
    }

    /// Returns the counted refusals, one entry for each caller, once the window is over. Without
    /// a time, it is over.
    pub(super) fn take_due(&mut self, now: Option<Timestamp>) -> Vec<AuditEntry> {
        let is_over = match (self.ends, now) {
            (None, _) => return Vec::new(),
            (Some(_), None) => true,
            (Some(ends), Some(now)) => ends <= now,
        };
        if !is_over {
            return Vec::new();
        }
        *self = Self {
            callers: std::mem::take(&mut self.callers),
            ..Self::new(self.window)
        };
        let callers = std::mem::take(&mut self.callers);
        callers
            .into_values()
            .filter_map(|refusals| refusals.held)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use bunraku_wire::api::AuditCertificate;

    use super::super::{AuditAction, AuditOrigin};
    use super::*;

    const WINDOW: SignedDuration = SignedDuration::from_mins(5);

    fn refusal(name: Option<&str>, address: &str, action: &str) -> AuditEntry {
        let mut origin = AuditOrigin::peer(None, Some(address.to_owned()));
        if let Some(name) = name {
            origin.who = name.to_owned();
            origin.certificate = Some(AuditCertificate {
                serial: "01".to_owned(),
                fingerprint: "02".to_owned(),
            });
        }
        AuditAction::new(action).into_entry(origin, Timestamp::UNIX_EPOCH, "server-1")
    }

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    #[test]
    fn a_flood_of_one_caller_becomes_a_few_records_and_a_count() {
        let mut limiter = RefusalLimiter::new(WINDOW);
        let mut written = 0;
        for _ in 0..1_000 {
            let entry = refusal(Some("web-1"), "192.0.2.1", "create-release");
            written += u64::from(limiter.admit(entry, at(0)).is_some());
        }
        assert_eq!(written, u64::from(PER_CALLER));
        assert!(
            limiter.take_due(Some(at(4))).is_empty(),
            "the window is open"
        );
        let due = limiter.take_due(Some(at(5)));
        let [counted] = due.as_slice() else {
            panic!("one record, not {due:?}");
        };
        assert_eq!(
            (counted.count + written, &*counted.action),
            (1_000, "create-release")
        );
        let next = refusal(Some("web-1"), "192.0.2.1", "create-release");
        assert!(limiter.admit(next, at(6)).is_some(), "a new window");
    }

    #[test]
    fn strangers_from_many_addresses_cannot_fill_the_log() {
        let mut limiter = RefusalLimiter::new(WINDOW);
        let mut records = 0;
        for number in 0..100_000_u32 {
            let address = std::net::Ipv4Addr::from(number % 10_000).to_string();
            let action = if number % 2 == 0 {
                "list-nodes"
            } else {
                "join"
            };
            records += usize::from(
                limiter
                    .admit(refusal(None, &address, action), at(0))
                    .is_some(),
            );
        }
        let due = limiter.take_due(None);
        let counted: u64 = due.iter().map(|entry| entry.count).sum();
        assert_eq!(records as u64 + counted, 100_000, "each one is counted");
        assert!(
            records + due.len() <= 50 + MOST_ADDRESSES + 1,
            "{}",
            due.len()
        );
    }

    #[test]
    fn a_stranger_does_not_hide_the_refusals_of_others() {
        let mut limiter = RefusalLimiter::new(WINDOW);
        for _ in 0..1_000 {
            limiter.admit(refusal(None, "192.0.2.9", "join"), at(0));
        }
        let other = refusal(Some("bob"), "192.0.2.9", "create-release");
        assert!(limiter.admit(other, at(0)).is_some());
    }
}
