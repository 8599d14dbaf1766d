//! The one server that links records to the chain.
//!
//! Each step is a transaction that compares the head, so a server that lost its leadership cannot
//! fork the chain, and two servers cannot link a record twice. The order of the chain is the order
//! in which the store committed the records.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bunraku_model::ServerId;
use bunraku_store::{Compare, Follow, KeyValue, Range, Transaction, settle};
use bunraku_wire::api::{AuditEntry, AuditOutcome, AuditRecord};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::lines::AuditLines;
use super::stored::{StoredHead, read_head};
use super::{AuditLog, RETRY};
use crate::leader::Leadership;
use crate::{ServiceError, document, keys};

/// The most records that one transaction links.
const BATCH: usize = 100;
/// The largest size of their lines together.
const BATCH_BYTES: usize = 512 << 10;
/// The most records that are read and ordered at a time.
const PAGE: usize = 1_000;
/// The newest records whose ids the leader remembers, to drop copies that arrive late.
const REMEMBERED: usize = 2_000;
/// The interval at which counts of refusals are written.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// The ids of the newest records, and whether their outcome is known.
#[derive(Default)]
pub(super) struct NewestIds {
    known: HashMap<Uuid, bool>,
    order: VecDeque<Uuid>,
}

impl NewestIds {
    fn add(&mut self, entry: &AuditEntry) {
        let is_known = entry.outcome != AuditOutcome::Unknown;
        if self.known.insert(entry.id, is_known).is_none() {
            self.order.push_back(entry.id);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Returns whether the record says nothing new.
    fn is_copy(&self, entry: &AuditEntry) -> bool {
        match self.known.get(&entry.id) {
            None => false,
            Some(true) => true,
            Some(false) => entry.outcome == AuditOutcome::Unknown,
        }
    }
}

impl AuditLog {
    /// Leads whenever it can, and writes the counts of refusals, until cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.stand_for_election() => {}
            () = self.count_refusals() => {}
        }
        self.close().await;
    }

    async fn count_refusals(&self) {
        let mut tick = tokio::time::interval(COUNT_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.write_refusals(Some(self.clock.now())).await;
        }
    }

    async fn stand_for_election(&self) {
        loop {
            let (store, ttl) = (self.store.clone(), self.shared.options.leader_ttl);
            let name = self.shared.server.to_string();
            match Leadership::campaign(store, keys::AUDIT_LEADER, &name, ttl).await {
                Ok(leadership) => {
                    let ended = tokio::select! {
                        () = leadership.keep_alive() => Ok(()),
                        ended = self.lead() => ended,
                    };
                    leadership.resign().await;
                    match ended {
                        Ok(()) => tracing::warn!("another server links audit records now"),
                        Err(error) => {
                            tracing::warn!(error = %error, "linking audit records failed; retrying");
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %error, "cannot stand for election for the audit log; retrying");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn lead(&self) -> Result<(), ServiceError> {
        let mut ids = self.newest_ids().await?;
        let mut inbox = Follow::new(self.store.clone(), keys::AUDIT_INBOX);
        let mut servers = Follow::new(self.store.clone(), keys::SERVERS);
        let mut upkeep = tokio::time::interval(self.shared.options.upkeep_every);
        upkeep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = inbox.next() => drop(changed?),
                changed = servers.next() => {
                    drop(changed?);
                    self.close_intents_of_the_dead().await?;
                }
                _ = upkeep.tick() => {
                    // A server may have died before it was followed.
                    self.close_intents_of_the_dead().await?;
                    self.prune_and_pack().await?;
                }
            }
            while self.link_some(&mut ids).await? {}
        }
    }

    /// Returns the ids of the newest records in the chain.
    pub(super) async fn newest_ids(&self) -> Result<NewestIds, ServiceError> {
        let mut ids = NewestIds::default();
        let Some(head) = read_head(&*self.store).await? else {
            return Ok(ids);
        };
        let newest = head.document.newest.number;
        let mut lines = AuditLines::new(
            self.store.clone(),
            newest.saturating_sub(REMEMBERED as u64),
            newest,
        );
        while let Some(some) = lines.next().await? {
            for line in some {
                if let Ok(record) = serde_json::from_slice::<AuditRecord>(&line) {
                    ids.add(&record.entry);
                }
            }
        }
        Ok(ids)
    }

    /// Links everything that waits.
    #[cfg(test)]
    pub(super) async fn link_everything(&self, ids: &mut NewestIds) -> Result<(), ServiceError> {
        while self.link_some(ids).await? {}
        Ok(())
    }

    /// Links records that wait in the inbox. Returns whether there may be more.
    async fn link_some(&self, ids: &mut NewestIds) -> Result<bool, ServiceError> {
        // The head first: if it is unchanged at the end, so are the records in the inbox that
        // were read after it.
        let known = read_head(&*self.store).await?;
        let page = Range {
            limit: PAGE,
            ..Range::prefix(keys::AUDIT_INBOX)
        };
        let mut waiting = self.store.range(page).await?.items;
        if waiting.is_empty() {
            return Ok(false);
        }
        waiting.sort_by_key(|entry| entry.created);
        waiting.truncate(BATCH);
        let (previous, head) = match known {
            None => (None, StoredHead::default()),
            Some(known) => (Some(known.entry), known.document),
        };
        let (transaction, linked) = link(&waiting, previous.as_ref(), head, ids);
        if settle(&*self.store, transaction).await?.is_committed() {
            linked.iter().for_each(|entry| ids.add(entry));
        } else {
            // Another leader was faster. It may have linked what this one does not know.
            *ids = self.newest_ids().await?;
        }
        Ok(true)
    }

    /// Records actions whose server died before it knew their outcome.
    pub(super) async fn close_intents_of_the_dead(&self) -> Result<(), ServiceError> {
        let intents = document::keys_under(&*self.store, keys::AUDIT_PENDING).await?;
        let mut alive: HashMap<ServerId, bool> = HashMap::new();
        for key in intents {
            let Some(server) = keys::parse_audit_pending(&key) else {
                continue;
            };
            let is_alive = match alive.get(&server) {
                Some(known) => *known,
                None => {
                    let found = self.store.get(&keys::server(server)).await?;
                    *alive.entry(server).or_insert(found.is_some())
                }
            };
            if !is_alive {
                self.close_intent(server, &key).await?;
            }
        }
        Ok(())
    }

    async fn close_intent(&self, server: ServerId, key: &str) -> Result<(), ServiceError> {
        let Some(found) = self.store.get(key).await? else {
            return Ok(());
        };
        let mut entry: AuditEntry = document::decode(&found)?;
        entry.message = Some("the server stopped before the outcome was recorded".to_owned());
        let closed = Transaction::new()
            .when(Compare::Absent(keys::server(server)))
            .when_unchanged(key, Some(&found))
            .delete(key)
            .put(keys::audit_inbox(entry.id), document::encode(&entry));
        // If it is refused, the server is alive after all, or wrote the outcome.
        settle(&*self.store, closed).await?;
        Ok(())
    }
}

/// Returns the transaction that links records, and those that it links.
fn link(
    waiting: &[KeyValue],
    previous: Option<&KeyValue>,
    mut head: StoredHead,
    ids: &NewestIds,
) -> (Transaction, Vec<AuditEntry>) {
    let first = head.newest.number + 1;
    let mut transaction = Transaction::new().when_unchanged(keys::AUDIT_HEAD, previous);
    let (mut text, mut linked) = (String::new(), Vec::new());
    for found in waiting {
        if text.len() > BATCH_BYTES {
            break;
        }
        // The record may have got its outcome late, since it was read.
        transaction = transaction
            .when_unchanged(&found.key, Some(found))
            .delete(found.key.clone());
        match document::decode::<AuditEntry>(found) {
            Ok(entry) if ids.is_copy(&entry) => {}
            Ok(entry) => {
                text.push_str(&head.append(entry.clone()));
                text.push('\n');
                linked.push(entry);
            }
            Err(error) => {
                tracing::error!(error = %error, "dropping an audit record that cannot be read");
            }
        }
    }
    if !linked.is_empty() {
        transaction = transaction
            .put(keys::AUDIT_HEAD, document::encode(&head))
            .put(keys::audit_records(first), text);
    }
    (transaction, linked)
}
