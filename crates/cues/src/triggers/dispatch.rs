//! Work that becomes due with time: answers that make room for the next command,
//! held triggers that are due, and expired ones.
//!
//! Every server does this; transactions ensure that each step takes effect once.

use std::time::Duration;

use bunraku_model::{CommandId, NodeName, TriggerName};
use bunraku_store::{Change, Follow, FollowEvent, Swap, Transaction, compare_and_swap};
use bunraku_wire::api::triggers::TriggerNews;
use bunraku_wire::api::{CommandOutcome, CommandResult};
use tokio_util::sync::CancellationToken;

use super::limits::{HeldFirings, HoldDecision};
use super::node_queue::NodeQueue;
use super::{RETRY, Triggers};
use crate::due;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The interval at which expired firings are looked for.
const LOOK: Duration = Duration::from_secs(10);

/// The longest sleep of a held trigger's timer, because clocks are sometimes adjusted.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// The number of news that fit into one transaction with its other writes.
const TOLD_AT_ONCE: usize = 100;

/// A trigger, and what to record about it, if anything.
type News = (TriggerName, Option<TriggerNews>);

impl Triggers {
    /// Runs until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        // Released when they are due.
        let held = due::when_due(&self.store, keys::TRIGGER_HELD, || self.release_due());
        // Announced by other services, or before a crash.
        let announced = due::each_entry(&self.store, keys::TRIGGER_ANNOUNCED, |key| async move {
            self.process(&key).await.map(|_| ())
        });
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.follow_answers() => {}
            () = self.check_periodically() => {}
            () = held => {}
            () = announced => {}
        }
    }

    /// Follows the answers: an answered command makes room for the firings that wait behind it.
    pub(super) async fn follow_answers(&self) {
        let mut pending = Follow::new(self.store.clone(), keys::all_pending_commands());
        loop {
            match pending.next().await {
                Ok(FollowEvent::Snapshot { .. }) => self.advance_all_queues().await,
                Ok(FollowEvent::Changes(batch)) => {
                    for change in batch.changes {
                        if let Change::Delete { key } = change
                            && let Some((node, command)) = keys::parse_pending_command(&key)
                        {
                            self.advance_or_warn(&node, Some(command)).await;
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %error, "watching answers failed; retrying");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn check_periodically(&self) {
        let mut tick = tokio::time::interval(LOOK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.advance_all_queues().await;
            if let Err(error) = self.forget_old_events().await {
                tracing::warn!(error = %error, "cannot delete old events; retrying");
            }
        }
    }

    async fn advance_all_queues(&self) {
        let queues = document::keys_under(&*self.store, keys::TRIGGER_QUEUES).await;
        for key in queues.unwrap_or_default() {
            if let Some(node) = keys::parse_trigger_queue(&key) {
                self.advance_or_warn(&node, None).await;
            }
        }
    }

    async fn advance_or_warn(&self, node: &NodeName, answered: Option<CommandId>) {
        if let Err(error) = self.advance(node, answered).await {
            tracing::warn!(%node, error = %error, "cannot deliver a node's triggers; retrying");
        }
    }

    /// Records the answer, and sends the firings that wait behind it.
    ///
    /// `answered` is a command that is known to be gone; without it, the store is
    /// read to see whether one is gone.
    pub(super) async fn advance(
        &self,
        node: &NodeName,
        answered: Option<CommandId>,
    ) -> Result<(), ServiceError> {
        let more = compare_and_swap(&*self.store, |_| self.next_step(node, answered)).await?;
        self.record_all(more).await
    }

    /// Decides on a node's queue. The result is the news that do not fit into the transaction.
    async fn next_step(
        &self,
        node: &NodeName,
        answered: Option<CommandId>,
    ) -> Result<Swap<Vec<News>>, ServiceError> {
        let key = keys::trigger_queue(node);
        let Some(read) = document::read::<NodeQueue>(&*self.store, &key).await? else {
            return Ok(Swap::Done(Vec::new()));
        };
        let (mut queue, mut news) = (read.document.clone(), Vec::new());
        let mut waits = false;
        if let Some(under_way) = &queue.under_way {
            let id = under_way.command;
            if answered.is_some_and(|answered| answered != id) {
                return Ok(Swap::Done(Vec::new()));
            }
            let pending = keys::command_pending(node, id);
            waits = answered.is_none() && self.store.get(&pending).await?.is_some();
            if !waits {
                let what = self.answer(node, id).await?;
                let triggers = under_way.triggers.iter().cloned();
                news.extend(triggers.zip(std::iter::repeat(what)));
                queue.under_way = None;
            }
        }
        for trigger in queue.expire(self.clock.now()) {
            news.push((trigger, Some(TriggerNews::Expired { node: node.clone() })));
        }
        // Firings that wait behind a command that is still on its way can only expire.
        if queue == read.document && (waits || queue.waiting.is_empty()) {
            return Ok(Swap::Done(Vec::new()));
        }
        if self.store.get(&keys::node_record(node)).await?.is_none() {
            let gone = Transaction::new().when_unchanged(&key, Some(&read.entry));
            return Ok(Swap::Write(gone.delete(key), Vec::new()));
        }
        let more = news.split_off(news.len().min(TOLD_AT_ONCE));
        let transaction = self.with_news(news);
        let transaction = self.write_queue(transaction, node, Some(&read.entry), queue, "triggers");
        Ok(Swap::Write(transaction, more))
    }

    /// Starts a transaction with these news. Firings that a node does not get are
    /// reported in the step that removes them from its queue: otherwise a server
    /// that dies in between would never report them.
    fn with_news(&self, news: Vec<News>) -> Transaction {
        let mut transaction = Transaction::new();
        for (trigger, what) in news {
            if let Some(what) = what {
                self.count(&what);
                transaction = self.add_event(transaction, &trigger, what);
            }
        }
        transaction
    }

    fn count(&self, what: &TriggerNews) {
        if matches!(what, TriggerNews::Expired { .. }) {
            self.metrics.trigger_expired();
        }
    }

    /// Returns the news about the answer to a command, if it is unusual.
    async fn answer(
        &self,
        node: &NodeName,
        command: CommandId,
    ) -> Result<Option<TriggerNews>, ServiceError> {
        let key = keys::command_result(node, command);
        let result = document::read::<CommandResult>(&*self.store, &key).await?;
        let Some(result) = result.map(|read| read.document) else {
            return Ok(None);
        };
        let node = node.clone();
        Ok(match result.outcome {
            CommandOutcome::Done => None,
            CommandOutcome::Expired => Some(TriggerNews::Expired { node }),
            CommandOutcome::Failed | CommandOutcome::NotUnderstood => Some(TriggerNews::Refused {
                node,
                message: result.message,
            }),
        })
    }

    async fn record_all(&self, news: Vec<News>) -> Result<(), ServiceError> {
        for (trigger, what) in news {
            if let Some(what) = what {
                self.count(&what);
                self.record(&trigger, what).await?;
            }
        }
        Ok(())
    }

    /// Releases the firings that are due. Returns the time until the next one is.
    pub(super) async fn release_due(&self) -> Result<Duration, ServiceError> {
        let mut sleep = LONGEST_SLEEP;
        for entry in document::read_all(&*self.store, keys::TRIGGER_HELD).await? {
            let name = entry.key.strip_prefix(keys::TRIGGER_HELD);
            let Some(trigger) = name.and_then(|name| TriggerName::new(name).ok()) else {
                continue;
            };
            let held: HeldFirings = document::decode(&entry)?;
            let limits = self.limits(&trigger).await?;
            let now = self.clock.now();
            match held.due(&limits, now) {
                HoldDecision::Now => {
                    self.release(&trigger).await?;
                }
                HoldDecision::At(at) => {
                    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                    sleep = sleep.min(left);
                }
                HoldDecision::NotYet => {}
            }
        }
        Ok(sleep)
    }
}
