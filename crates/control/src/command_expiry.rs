//! Expires commands when their time is up, on every server.
//!
//! It follows the pending commands, so that it knows the deadline of each without reading all of
//! them again. Expiring is a transaction: if several servers try, one succeeds.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bunraku_store::{Change, Follow, FollowEvent, StoreError};
use bunraku_wire::api::Envelope;
use jiff::Timestamp;

use crate::commands::Commands;
use crate::{document, keys};

/// The longest sleep, because clocks are sometimes adjusted.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// The delay before a retry after the store was unavailable.
const RETRY: Duration = Duration::from_millis(500);

/// The deadlines of all pending commands.
#[derive(Default)]
struct Deadlines {
    by_key: HashMap<String, Timestamp>,
    in_order: BTreeSet<(Timestamp, String)>,
}

impl Deadlines {
    fn put(&mut self, key: &str, expires: Timestamp) {
        self.remove(key);
        self.by_key.insert(key.to_owned(), expires);
        self.in_order.insert((expires, key.to_owned()));
    }

    fn remove(&mut self, key: &str) {
        if let Some(expires) = self.by_key.remove(key) {
            self.in_order.remove(&(expires, key.to_owned()));
        }
    }

    fn take(&mut self, followed: FollowEvent) {
        let changes = match followed {
            FollowEvent::Snapshot { items, .. } => {
                *self = Self::default();
                items.into_iter().map(Change::Put).collect()
            }
            FollowEvent::Changes(batch) => batch.changes,
        };
        for change in changes {
            match change {
                Change::Put(entry) => match document::decode::<Envelope>(&entry) {
                    Ok(envelope) => self.put(&entry.key, envelope.expires),
                    Err(error) => {
                        tracing::error!(error = %error, "ignoring a command that cannot be read");
                    }
                },
                Change::Delete { key } => self.remove(&key),
            }
        }
    }

    /// Removes and returns the first command whose time is up.
    fn pop_due(&mut self, now: Timestamp) -> Option<String> {
        let (expires, _) = self.in_order.first()?;
        if *expires > now {
            return None;
        }
        let (_, key) = self.in_order.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    fn sleep(&self, now: Timestamp) -> Duration {
        match self.in_order.first() {
            None => LONGEST_SLEEP,
            Some((expires, _)) => {
                let left = Duration::try_from(expires.duration_since(now)).unwrap_or_default();
                left.min(LONGEST_SLEEP)
            }
        }
    }
}

impl Commands {
    /// Expires commands when their time is up, forever.
    pub async fn expire_on_time(&self) {
        let mut pending = Follow::new(self.store.clone(), keys::all_pending_commands());
        let mut deadlines = Deadlines::default();
        loop {
            let sleep = deadlines.sleep(self.clock.now());
            match tokio::time::timeout(sleep, pending.next()).await {
                Ok(Ok(followed)) => deadlines.take(followed),
                Ok(Err(error)) => wait_for_store(&error).await,
                Err(_) => {}
            }
            while let Some(key) = deadlines.pop_due(self.clock.now()) {
                let Some((node, id)) = keys::parse_pending_command(&key) else {
                    continue;
                };
                if let Err(error) = self.expire(&node, id).await {
                    // The periodic check finds it again.
                    tracing::warn!(%node, error = %error, "cannot expire a command; retrying later");
                }
            }
        }
    }
}

async fn wait_for_store(error: &StoreError) {
    tracing::warn!(error = %error, "cannot follow the pending commands; retrying");
    tokio::time::sleep(RETRY).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_due_in_the_order_of_their_deadlines() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut deadlines = Deadlines::default();
        deadlines.put("late", at(20));
        deadlines.put("early", at(10));
        deadlines.put("answered", at(5));
        deadlines.remove("answered");
        assert_eq!(deadlines.sleep(at(8)), Duration::from_secs(2));
        assert_eq!(deadlines.pop_due(at(9)), None);
        assert_eq!(deadlines.pop_due(at(20)).as_deref(), Some("early"));
        assert_eq!(deadlines.pop_due(at(20)).as_deref(), Some("late"));
        assert_eq!(deadlines.pop_due(at(20)), None);
        assert_eq!(deadlines.sleep(at(20)), LONGEST_SLEEP);
    }
}
