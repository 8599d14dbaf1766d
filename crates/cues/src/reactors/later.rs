//! Work that becomes due with time: rules that their limits hold back, and nodes
//! that have been lost for long enough.

use std::time::Duration;

use bunraku_model::{Connection, EnvironmentName, NodeName};
use bunraku_store::{KeyValue, Transaction, settle};
use bunraku_wire::api::reactors::Reactor;
use bunraku_wire::api::triggers::TriggerLimits;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Reactors;
use super::inbox::{self, Entry};
use crate::triggers::{HeldFirings, HoldDecision};
use bunraku_control::presence::StoredConnection;
use bunraku_control::{ServiceError, document, keys};

/// The longest sleep, because clocks are sometimes adjusted.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// A lost node, and a rule that waits to see whether it stays lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LostNode {
    environment: EnvironmentName,
    rule: String,
    due: Timestamp,
    entry: Entry,
}

impl Reactors {
    /// Adds a rule's wait for a lost node.
    pub(super) fn wait(
        &self,
        transaction: Transaction,
        environment: &EnvironmentName,
        entry: &Entry,
        rule: &Reactor,
    ) -> Transaction {
        let since = entry.lost_since.unwrap_or_else(|| self.clock.now());
        let seconds = i64::try_from(rule.for_seconds.unwrap_or_default()).unwrap_or(i64::MAX);
        let due = since.checked_add(SignedDuration::from_secs(seconds));
        let lost = LostNode {
            environment: environment.clone(),
            rule: rule.name.clone(),
            due: due.unwrap_or(Timestamp::MAX),
            entry: entry.clone(),
        };
        transaction.put(keys::reactor_wait(Uuid::now_v7()), document::encode(&lost))
    }

    /// Does the work that is due. Returns the time until more may be due.
    pub(super) async fn do_due(&self) -> Result<Duration, ServiceError> {
        let now = self.clock.now();
        let mut next = None;
        for entry in document::read_all(&*self.store, keys::REACTOR_WAITS).await? {
            let lost: LostNode = document::decode(&entry)?;
            if lost.due <= now {
                self.check_lost_node(&entry, &lost).await?;
            } else {
                next = earlier(next, lost.due);
            }
        }
        for entry in document::read_all(&*self.store, keys::REACTOR_HELD).await? {
            if let Some(due) = self.check_held_rule(&entry, now).await? {
                next = earlier(next, due);
            }
        }
        let left = next.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        Ok(left.map_or(LONGEST_SLEEP, |left| left.min(LONGEST_SLEEP)))
    }

    /// Passes on the event if the node's connection has not changed: it has been
    /// lost for long enough.
    async fn check_lost_node(&self, entry: &KeyValue, lost: &LostNode) -> Result<(), ServiceError> {
        let transaction = Transaction::new()
            .when_unchanged(&entry.key, Some(entry))
            .delete(entry.key.clone());
        let Some(node) = &lost.entry.node else {
            settle(&*self.store, transaction).await?;
            return Ok(());
        };
        let still = self.still_lost(node, lost.entry.lost_since).await?;
        let transaction = match still {
            None => transaction,
            Some(connection) => {
                let only = Entry {
                    environment: Some(lost.environment.clone()),
                    only: Some(lost.rule.clone()),
                    ..lost.entry.clone()
                };
                let unchanged = transaction.when_unchanged(&connection.key, Some(&connection));
                inbox::put(unchanged, &only)
            }
        };
        // Refused: the node came back at this moment, or another server did this.
        // The change wakes us.
        settle(&*self.store, transaction).await?;
        Ok(())
    }

    async fn still_lost(
        &self,
        node: &NodeName,
        since: Option<Timestamp>,
    ) -> Result<Option<KeyValue>, ServiceError> {
        let key = keys::node_connection(node);
        let stored = document::read::<StoredConnection>(&*self.store, &key).await?;
        Ok(stored.and_then(|stored| match stored.document.connection {
            Connection::Lost { since: lost, .. } if Some(lost) == since => Some(stored.entry),
            _ => None,
        }))
    }

    /// Releases a held rule if it is due; otherwise returns the time when it is.
    async fn check_held_rule(
        &self,
        entry: &KeyValue,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ServiceError> {
        let held: HeldFirings = document::decode(entry)?;
        let Some((environment, name)) = keys::parse_reactor_held(&entry.key) else {
            return Ok(None);
        };
        let rules = self.inbox.of(&environment);
        let transaction = Transaction::new().when_unchanged(&entry.key, Some(entry));
        let Some(rule) = rules.iter().find(|rule| rule.name == name) else {
            // The rule is no longer in the code.
            let transaction = transaction.delete(entry.key.clone());
            settle(&*self.store, transaction).await?;
            return Ok(None);
        };
        match held.due(&TriggerLimits::from(&rule.limits), now) {
            HoldDecision::Now => {
                let transaction =
                    self.announce_held(transaction, &environment, rule, &entry.key, held);
                settle(&*self.store, transaction).await?;
                Ok(None)
            }
            HoldDecision::At(at) => Ok(Some(at)),
            HoldDecision::NotYet => Ok(None),
        }
    }
}

fn earlier(known: Option<Timestamp>, other: Timestamp) -> Option<Timestamp> {
    Some(known.map_or(other, |known| known.min(other)))
}
